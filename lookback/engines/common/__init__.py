"""What every engine needs: prompts, tokens, sources, stops, continuations, streaming, logits."""
