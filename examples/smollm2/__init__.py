"""SmolLM2-135M-Instruct: a trained language model with one KV cache for all of its methods."""
