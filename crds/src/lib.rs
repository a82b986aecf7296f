//! dem-crds
