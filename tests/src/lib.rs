//! dem-tests
