//! Functions of the kernel that programs call, as `linux/bpf.h` numbers them.

/// `bpf_map_update_elem`
pub(crate) const UPDATE: i32 = 2;
/// `bpf_get_current_pid_tgid`
pub(crate) const PROCESS: i32 = 14;
/// `bpf_get_current_uid_gid`
pub(crate) const USER: i32 = 15;
/// `bpf_get_current_comm`
pub(crate) const COMM: i32 = 16;
/// `bpf_get_socket_cookie`
pub(crate) const COOKIE: i32 = 46;
