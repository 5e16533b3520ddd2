# posfuse on CPUs. Build: docker build --build-arg COMMIT=$(git rev-parse HEAD) -t posfuse .
# Run: docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/runs" posfuse train fusion=gate_scalar
FROM python:3.11-slim
WORKDIR /posfuse
# Dependencies first, so that a change of the source does not install them again. Of torch the CPU
# build: the one on PyPI brings several gigabytes of CUDA libraries.
COPY pyproject.toml constraints.txt ./
# Extras of pyproject.toml, such as --build-arg EXTRAS="optuna transformers".
ARG EXTRAS="optuna"
RUN python -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *(d for e in sys.argv[1:] for d in p["optional-dependencies"][e]), sep="\n")' $EXTRAS > requirements.txt \
 && pip install --no-cache-dir --no-deps -c constraints.txt \
      --index-url https://download.pytorch.org/whl/cpu torch \
 && pip install --no-cache-dir -c constraints.txt -r requirements.txt
COPY . .
# The records of runs name this commit.
ARG COMMIT
RUN POSFUSE_COMMIT=$COMMIT pip install --no-cache-dir --no-deps .
# Sweeps are written to multirun/ in /runs: mount a folder of yours, and run as its owner (--user).
# A user without an entry in /etc/passwd needs a name and a home directory.
RUN useradd --create-home posfuse && mkdir /runs && chown posfuse /runs
ENV HOME=/tmp USER=posfuse
USER posfuse
WORKDIR /runs
ENTRYPOINT ["posfuse"]
