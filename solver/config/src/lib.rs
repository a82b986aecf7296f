//! dem-config
