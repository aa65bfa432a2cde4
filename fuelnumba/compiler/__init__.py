"""Floor 3: from a graph to a plan: rewriting, fusion, kernel text, compilation, memory."""
