"""posfuse: does the way position is fused with token embeddings matter?"""

__version__ = "0.1.0"
