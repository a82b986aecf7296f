//! dem-comm
