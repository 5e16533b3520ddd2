# posfuse on CPUs. Build: docker build -t posfuse .
# Run: docker run --rm -v "$PWD:/runs" posfuse train fusion=gate_scalar data=bbc_article
FROM python:3.11-slim
WORKDIR /posfuse
COPY . .
# torch's CPU build first: the one on PyPI brings several gigabytes of CUDA libraries.
RUN pip install --no-cache-dir --no-deps -c constraints.txt \
      --index-url https://download.pytorch.org/whl/cpu torch \
 && pip install --no-cache-dir -c constraints.txt .
# Sweeps are written to multirun/ in this folder: mount one of yours.
WORKDIR /runs
ENTRYPOINT ["posfuse"]
