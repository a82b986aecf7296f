//! dem-operator
