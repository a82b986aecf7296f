//! dem-solver
