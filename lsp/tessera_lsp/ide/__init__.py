"""Editor features over the session: plain values in, plain values out, no protocol types."""
