//! Why the kernel refuses what it was asked for: the one translation of its error numbers. EPERM, EACCES and ENOSYS say
//! nothing of the reason, which is a missing capability, a filter of system calls, a user namespace, a locked down or an
//! old kernel, or a way to mount `/proc`. Whoever was refused names what was asked for and the number; the reason is
//! looked for here, in what the kernel says of this process. `surroundings` reads that, and [`Cause::of`] decides.

mod surroundings;

use std::fmt;

use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use samehost_model::scan::SeenAs;

pub(crate) use surroundings::{FIRST_PID_NAMESPACE, is_own_proc, is_proc};
use surroundings::{Mounted, PARTS, Surroundings};

/// What the kernel was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The processes of this machine, in `/proc`.
    Processes,
    /// What other processes have open.
    Descriptors,
    /// Its listing of sockets: sock_diag over netlink.
    SocketListing,
    /// To enter another network namespace.
    NetworkNamespace,
    /// Programs and maps in the kernel: bpf(2).
    Bpf,
    /// To open a file without side effects: openat2(2).
    OpenFile,
    /// To answer system calls of a program: seccomp(2).
    AnswerCalls,
    /// To change a file, or its directory.
    ChangeFile,
    /// To start another process: fork(2), and the descriptors by which it is talked to.
    StartProcess,
}

/// Why it was refused, as far as that can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// `/proc` is not there, or no procfs.
    NotMounted,
    /// `/proc` is of a PID namespace that this process is not in.
    ForeignProc,
    /// `/proc` is mounted with this option, which hides processes.
    Hidden(String),
    OrdinaryUser,
    /// It is root of a user namespace, who has no rights outside of it.
    UserNamespace,
    /// It is root without these.
    Capability(&'static str),
    /// A filter of system calls (seccomp) is on this process.
    Filter,
    /// The kernel is locked down in this mode.
    Lockdown(String),
    /// The kernel came before it: the version that has it, and this one.
    OldKernel(&'static str, String),
    /// The processes are in another PID namespace.
    PidNamespace,
    /// The limit on the size of files is reached.
    FileSize,
    /// This process, or the machine, may have no more files open.
    OpenFiles,
    /// What was asked about has ended meanwhile.
    Gone,
    /// The kernel was built without it, or its module is not loaded.
    NotBuilt,
    /// Something else, such as a security module.
    Unknown,
}

/// A refusal of the kernel with its reason, and what to try. It names its error number at most once: where no reason is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    asked: Asked,
    errno: Option<Errno>,
    cause: Cause,
}

impl Refusal {
    /// Looks for the reason of a refusal that was met just now.
    #[must_use]
    pub fn of(asked: Asked, errno: Errno) -> Self {
        let cause = Cause::of(asked, errno, &Surroundings::read());
        Refusal { asked, errno: Some(errno), cause }
    }

    /// The same of an error of the standard library; `None` if it is none of the kernel's.
    #[must_use]
    pub fn of_error(asked: Asked, error: &std::io::Error) -> Option<Self> {
        Some(Refusal::of(asked, Errno::from_io_error(error)?))
    }

    /// Why sockets have no process that is seen, of which `refused` may not be looked at; `None` where nothing hides any.
    #[must_use]
    pub fn of_unseen(refused: u32) -> Option<Self> {
        let cause = Cause::of_unseen(refused, &Surroundings::read())?;
        Some(Refusal { asked: Asked::Descriptors, errno: None, cause })
    }

    /// Whether this program lacks the rights for it, so that somebody with more rights can do it here.
    #[must_use]
    pub fn is_of_rights(&self) -> bool {
        matches!(self.cause, Cause::OrdinaryUser | Cause::UserNamespace | Cause::Capability(_))
    }

    /// Whether it is only that an ordinary user sees his own processes, as is usual.
    #[must_use]
    pub fn is_of_ordinary_user(&self) -> bool {
        self.cause == Cause::OrdinaryUser
    }

    /// Whether its reason is known; else it can only repeat the number.
    #[must_use]
    pub fn has_reason(&self) -> bool {
        self.cause != Cause::Unknown
    }

    /// The refusal that an error is or has among its causes.
    #[must_use]
    pub fn within(error: &std::io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Why, without a full stop.
    #[must_use]
    pub fn why(&self) -> String {
        let what = self.asked.refused();
        match &self.cause {
            Cause::NotMounted => "/proc is not mounted here, and processes are seen nowhere else".to_owned(),
            Cause::ForeignProc => "/proc is of a PID namespace that this program is not in".to_owned(),
            Cause::Hidden(option) => {
                format!("/proc is mounted with {option}, which hides other users' processes")
            }
            Cause::OrdinaryUser => match self.asked.capability() {
                Some((_, capabilities)) => format!("{what} takes root, or {capabilities}"),
                None => format!("{what} is not for this user"),
            },
            Cause::UserNamespace => {
                format!(
                    "{what} is refused: this is root of a user namespace, who has no rights outside of it"
                )
            }
            Cause::Capability(missing) => format!("{what} takes {missing}, which this root has not"),
            Cause::Filter => {
                format!("{what} is refused by a filter of system calls (seccomp), which is on this process")
            }
            Cause::Lockdown(mode) => format!("{what} is refused: the kernel is locked down ({mode})"),
            Cause::OldKernel(since, this) => format!("{what} came with Linux {since}, and this is {this}"),
            Cause::PidNamespace => {
                "no process of this PID namespace has them: theirs are outside of it, or have ended"
                    .to_owned()
            }
            Cause::FileSize => "the limit on the size of files (ulimit -f) is reached".to_owned(),
            Cause::OpenFiles => format!("{what} needs a file more than may be open (ulimit -n)"),
            Cause::Gone => "it has gone meanwhile".to_owned(),
            Cause::NotBuilt => format!("{what} is not in this kernel, or its module is not loaded"),
            Cause::Unknown => match self.errno {
                Some(errno) => format!("{what} is refused: {errno}"),
                None => format!("{what} is refused, by a security module perhaps"),
            },
        }
    }

    /// What to try, without a full stop.
    #[must_use]
    pub fn try_next(&self) -> &'static str {
        match (&self.cause, self.asked) {
            (Cause::NotMounted, _) => "mount it: mount -t proc proc /proc",
            (Cause::ForeignProc, _) => "mount that of this namespace: mount -t proc proc /proc",
            (Cause::Hidden(_), _) if self.is_root() => {
                "give it CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE), or run it on the host"
            }
            (Cause::Hidden(_) | Cause::OrdinaryUser, Asked::Descriptors) => {
                "root sees them: sudo samehost scan"
            }
            (Cause::Hidden(_) | Cause::OrdinaryUser, _) => "try as root (sudo)",
            (Cause::UserNamespace, _) => "run it as root of the machine, outside of the namespace",
            (Cause::Capability(_), Asked::Descriptors) => {
                "give it to the container (docker run --cap-add SYS_PTRACE), or run it on the host"
            }
            (Cause::Capability(_), _) => "give it to the container or the unit, or run it on the host",
            (Cause::Filter, _) => {
                "run it outside of the container or the unit, or let its filter allow this (docker run --security-opt seccomp=…, SystemCallFilter=, RestrictAddressFamilies=)"
            }
            (Cause::Lockdown(_), _) => "boot without lockdown=confidentiality",
            (Cause::OldKernel(..), _) => "run it on a newer kernel",
            (Cause::PidNamespace, _) => {
                "on the host they are seen: run samehost there, or with docker run --pid=host"
            }
            (Cause::FileSize, _) => "raise it: ulimit -f unlimited",
            (Cause::OpenFiles, _) => "raise it: ulimit -n 1024",
            (Cause::Gone, _) => "scan again",
            (Cause::NotBuilt, Asked::SocketListing) => {
                "load the modules: modprobe -a tcp_diag udp_diag unix_diag"
            }
            (Cause::NotBuilt, _) => "run it on a kernel that has it",
            (Cause::Unknown, Asked::ChangeFile) => {
                "look for an immutable attribute (lsattr) or a security module (SELinux, AppArmor)"
            }
            (Cause::Unknown, Asked::StartProcess) => "see what limits it: ulimit -a",
            (Cause::Unknown, _) => "look for a security module (SELinux, AppArmor) in the kernel's log",
        }
    }

    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why(), self.try_next())
    }
}

impl std::error::Error for Refusal {}

/// With whose eyes this program looks. User 0 alone says nothing: whoever makes a user namespace is user 0 of it.
#[must_use]
pub fn seen_as() -> SeenAs {
    let around = Surroundings::read();
    let sees_all = Asked::Descriptors.capability().is_some_and(|(needed, _)| around.has(needed));
    match (around.is_root, around.is_in_user_namespace) {
        (false, _) => SeenAs::User,
        (true, true) => SeenAs::RootOfUserNamespace,
        (true, false) if sees_all => SeenAs::Root,
        (true, false) => SeenAs::RootWithoutRights,
    }
}

impl Asked {
    /// As the subject of a sentence.
    fn refused(self) -> &'static str {
        match self {
            Asked::Processes => "/proc",
            Asked::Descriptors => "to see what other users' processes have open",
            Asked::SocketListing => "the kernel's listing of sockets (netlink)",
            Asked::NetworkNamespace => "to enter another network namespace",
            Asked::Bpf => "bpf(2)",
            Asked::OpenFile => "openat2(2), by which files are opened safely,",
            Asked::AnswerCalls => "seccomp(2)",
            Asked::ChangeFile => "this change",
            Asked::StartProcess => "to start another process",
        }
    }

    /// What root needs for it.
    fn capability(self) -> Option<(u64, &'static str)> {
        const PTRACE: u64 = CapabilitySet::SYS_PTRACE.bits();
        const ADMIN: u64 = CapabilitySet::SYS_ADMIN.bits();
        match self {
            Asked::Processes | Asked::Descriptors => Some((PTRACE, "CAP_SYS_PTRACE")),
            Asked::NetworkNamespace => Some((ADMIN | PTRACE, "CAP_SYS_ADMIN and CAP_SYS_PTRACE")),
            Asked::Bpf => Some((PARTS, "CAP_BPF and CAP_PERFMON")),
            _ => None,
        }
    }

    /// The first kernel that has the call.
    fn since(self) -> Option<((u32, u32), &'static str)> {
        match self {
            Asked::OpenFile => Some(((5, 6), "5.6")),
            Asked::AnswerCalls => Some(((5, 9), "5.9")),
            _ => None,
        }
    }
}

impl Cause {
    fn of(asked: Asked, errno: Errno, around: &Surroundings) -> Self {
        match (asked, errno) {
            (Asked::Processes, _) if around.proc == Mounted::Not => return Cause::NotMounted,
            (Asked::Processes, _) if around.proc == Mounted::Foreign => return Cause::ForeignProc,
            (Asked::NetworkNamespace, Errno::NOENT | Errno::SRCH) => return Cause::Gone,
            (Asked::ChangeFile, Errno::FBIG) => return Cause::FileSize,
            _ => {}
        }
        match errno {
            Errno::NOSYS => Cause::of_missing(asked, around),
            // A family of sockets that systemd's RestrictAddressFamilies= forbids is refused with EAFNOSUPPORT.
            Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT | Errno::NOENT if asked == Asked::SocketListing => {
                if around.has_filter {
                    Cause::Filter
                } else {
                    Cause::NotBuilt
                }
            }
            Errno::PERM | Errno::ACCESS => Cause::of_denied(asked, around),
            Errno::MFILE | Errno::NFILE => Cause::OpenFiles,
            _ => Cause::Unknown,
        }
    }

    /// The reason of ENOSYS: old container engines answer calls that they do not know with it, on kernels that have them.
    fn of_missing(asked: Asked, around: &Surroundings) -> Self {
        if let Some((since, text)) = asked.since()
            && around.kernel < since
        {
            return Cause::OldKernel(text, around.release.clone());
        }
        if around.has_filter { Cause::Filter } else { Cause::NotBuilt }
    }

    /// The reason of EPERM and EACCES. What this process lacks is known for certain, and so comes before a filter, which may be
    /// there without being the reason.
    fn of_denied(asked: Asked, around: &Surroundings) -> Self {
        let is_granted = asked.capability().is_none_or(|(needed, _)| around.has(needed));
        if asked == Asked::SocketListing {
            // Anybody may ask for it.
            return if around.has_filter { Cause::Filter } else { Cause::Unknown };
        }
        if !around.is_root {
            let is_enough = asked.capability().is_some() && is_granted;
            return if is_enough && around.has_filter { Cause::Filter } else { Cause::OrdinaryUser };
        }
        if around.is_in_user_namespace && asked != Asked::AnswerCalls {
            return Cause::UserNamespace;
        }
        match asked.capability() {
            Some((_, named)) if !is_granted => return Cause::Capability(named),
            _ => {}
        }
        match &around.lockdown {
            Some(mode) if asked == Asked::Bpf => Cause::Lockdown(mode.clone()),
            _ if around.has_filter && asked != Asked::ChangeFile => Cause::Filter,
            _ => Cause::Unknown,
        }
    }

    fn of_unseen(refused: u32, around: &Surroundings) -> Option<Self> {
        let (ptrace, named) = Asked::Descriptors.capability()?;
        let sees_all = around.has(ptrace) && !around.is_in_user_namespace;
        match &around.proc {
            Mounted::Hiding(option) if !sees_all => return Some(Cause::Hidden(option.clone())),
            _ => {}
        }
        if refused == 0 {
            return around.is_in_pid_namespace.then_some(Cause::PidNamespace);
        }
        Some(if !around.is_root && !sees_all {
            Cause::OrdinaryUser
        } else if around.is_in_user_namespace {
            Cause::UserNamespace
        } else if !sees_all {
            Cause::Capability(named)
        } else {
            Cause::Unknown
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Surroundings {
        Surroundings {
            is_root: true,
            capabilities: u64::MAX,
            is_in_user_namespace: false,
            is_in_pid_namespace: false,
            has_filter: false,
            lockdown: None,
            kernel: (6, 1),
            release: "6.1.0".to_owned(),
            proc: Mounted::Whole,
        }
    }

    #[test]
    fn what_is_missing_is_named_before_a_filter_that_may_not_be_the_reason() {
        let of = |around: &Surroundings| Cause::of(Asked::Bpf, Errno::PERM, around);
        let filtered = Surroundings { has_filter: true, ..root() };
        assert_eq!(of(&filtered), Cause::Filter);
        assert_eq!(of(&root()), Cause::Unknown, "a security module");
        assert_eq!(
            of(&Surroundings { capabilities: 0, ..filtered.clone() }),
            Cause::Capability("CAP_BPF and CAP_PERFMON")
        );
        assert_eq!(of(&Surroundings { is_in_user_namespace: true, ..root() }), Cause::UserNamespace);
        let user = Surroundings { is_root: false, capabilities: 0, ..root() };
        assert_eq!(of(&user), Cause::OrdinaryUser);
        let capable = Surroundings { is_root: false, ..filtered };
        assert_eq!(of(&capable), Cause::Filter, "a unit with CAP_BPF and CAP_PERFMON");
        let locked = Surroundings { lockdown: Some("confidentiality".to_owned()), ..root() };
        assert_eq!(of(&locked), Cause::Lockdown("confidentiality".to_owned()));
    }

    #[test]
    fn a_call_that_is_missing_is_the_kernels_age_or_a_filter() {
        let of = |around: &Surroundings| Cause::of(Asked::OpenFile, Errno::NOSYS, around);
        let old = Surroundings { kernel: (5, 4), release: "5.4.0-1".to_owned(), has_filter: true, ..root() };
        assert_eq!(of(&old), Cause::OldKernel("5.6", "5.4.0-1".to_owned()));
        assert_eq!(of(&Surroundings { has_filter: true, ..root() }), Cause::Filter);
        assert_eq!(of(&root()), Cause::NotBuilt);
        assert_eq!(Cause::of(Asked::SocketListing, Errno::AFNOSUPPORT, &root()), Cause::NotBuilt);
    }

    #[test]
    fn who_is_unseen_is_hidden_by_the_mount_by_rights_or_by_the_namespace() {
        let hiding = Surroundings { proc: Mounted::Hiding("hidepid=2".to_owned()), ..root() };
        assert_eq!(Cause::of_unseen(0, &hiding), None, "root sees all of them");
        let bare = Surroundings { capabilities: 0, is_in_pid_namespace: true, ..hiding.clone() };
        assert_eq!(Cause::of_unseen(0, &bare), Some(Cause::Hidden("hidepid=2".to_owned())));
        let within = Surroundings { is_in_pid_namespace: true, ..root() };
        assert_eq!(Cause::of_unseen(0, &within), Some(Cause::PidNamespace));
        assert_eq!(
            Cause::of_unseen(3, &Surroundings { capabilities: 0, ..root() }),
            Some(Cause::Capability("CAP_SYS_PTRACE"))
        );
        let user = Surroundings { capabilities: 0, is_root: false, ..root() };
        assert_eq!(Cause::of_unseen(3, &user), Some(Cause::OrdinaryUser));
        assert_eq!(Cause::of_unseen(0, &root()), None);
    }

    #[test]
    fn a_number_is_told_once_and_only_without_a_reason() {
        let unknown =
            Refusal { asked: Asked::Bpf, errno: Some(Errno::PERM), cause: Cause::Unknown }.to_string();
        assert_eq!(unknown.matches("(os error").count(), 1, "{unknown}");
        let known = Refusal { cause: Cause::Filter, ..Refusal::of(Asked::Bpf, Errno::PERM) }.to_string();
        assert!(!known.contains("os error"), "{known}");
    }
}
