//! app: see the layer list in the crate documentation.
