//! Configurations of this machine: a file with its editor, which program runs by it, what a name or a directory stands for,
//! and lines that lead to services here although no editor reads them. Only reads, with the permissions of whoever decides
//! what a file says.

pub(crate) mod config_file;
pub(crate) mod leads;
pub(crate) mod server_files;
pub(crate) mod target;
