"""Looking through a whole bucket: what it holds, what is wrong with it, and what nobody needs."""
