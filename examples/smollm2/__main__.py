"""`python -m examples.smollm2 export | chat | bench`."""

from examples.smollm2.cli import app

if __name__ == "__main__":
    app()
