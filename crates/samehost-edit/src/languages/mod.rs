//! Languages that several formats use.

pub(crate) mod erb;
pub(crate) mod php;
pub(crate) mod php_ini;
pub(crate) mod url;
pub(crate) mod yaml;
