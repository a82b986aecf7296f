//! dem-launch
