//! dem-plan
