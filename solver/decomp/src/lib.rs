//! dem-decomp
