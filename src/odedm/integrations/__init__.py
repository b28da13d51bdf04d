"""The memory inside other libraries: one module each, which needs that library and is loaded only when imported."""
