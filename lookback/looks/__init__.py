"""Where a response looked: the attention of its tokens on the picture, as maps and words."""
