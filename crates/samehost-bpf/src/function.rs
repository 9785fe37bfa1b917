//! Functions of the kernel that programs call, as `linux/bpf.h` numbers them.

/// `bpf_map_lookup_elem`
pub const LOOK_UP: i32 = 1;
/// `bpf_map_update_elem`
pub const UPDATE: i32 = 2;
/// `bpf_get_current_pid_tgid`
pub const PROCESS: i32 = 14;
/// `bpf_get_current_uid_gid`
pub const USER: i32 = 15;
/// `bpf_get_current_comm`
pub const COMM: i32 = 16;
/// `bpf_get_socket_cookie`
pub const COOKIE: i32 = 46;
/// `bpf_msg_redirect_hash`
pub const REDIRECT: i32 = 71;
/// `bpf_get_netns_cookie`
pub const NETWORK: i32 = 122;
