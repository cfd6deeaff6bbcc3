"""Questions about a graph: their structures, instances with reference rows, and demonstrations of answering them."""
