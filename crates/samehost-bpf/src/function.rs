//! Functions of the kernel that programs call, as `linux/bpf.h` numbers them.

/// `bpf_map_lookup_elem`
pub(crate) const LOOK_UP: i32 = 1;
/// `bpf_map_update_elem`
pub(crate) const UPDATE: i32 = 2;
/// `bpf_map_delete_elem`
pub(crate) const DELETE: i32 = 3;
/// `bpf_ktime_get_ns`
pub(crate) const NOW: i32 = 5;
/// `bpf_get_current_pid_tgid`
pub(crate) const PROCESS: i32 = 14;
/// `bpf_get_current_uid_gid`
pub(crate) const USER: i32 = 15;
/// `bpf_get_current_comm`
pub(crate) const COMM: i32 = 16;
/// `bpf_get_socket_cookie`
pub(crate) const COOKIE: i32 = 46;
/// `bpf_sk_storage_get`
pub(crate) const OF_SOCKET: i32 = 107;
/// `bpf_task_storage_get`
pub(crate) const OF_TASK: i32 = 156;
/// `bpf_get_current_task_btf`
pub(crate) const TASK: i32 = 158;
/// `bpf_sock_from_file`
pub(crate) const SOCKET_OF_FILE: i32 = 162;
/// `bpf_skc_to_unix_sock`, since Linux 5.16
pub(crate) const AS_UNIX: i32 = 178;
