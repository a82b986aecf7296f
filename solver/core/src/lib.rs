//! dem-core
