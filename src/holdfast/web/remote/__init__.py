"""Workers in any language, over HTTP."""
