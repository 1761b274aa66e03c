"""Silero VAD: a trained streaming voice-activity detector with one arena for its state."""
