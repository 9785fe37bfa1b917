//! CPU profile of an arm by function and by stack, and the functions that differ most between two arms.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::arm::Point;

/// Who used CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What makes the load.
    Client,
    /// What stands between client and server.
    Proxy,
    /// What answers.
    Server,
}

impl Role {
    /// All roles, starting with the client.
    pub const ALL: [Role; 3] = [Role::Client, Role::Proxy, Role::Server];

    /// Name in JSON and in the root of stacks.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Proxy => "proxy",
            Role::Server => "server",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What one role had of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleShare {
    /// Who.
    pub role: Role,
    /// Its samples.
    pub samples: u64,
    /// Its CPU time per operation of the profiled trials: read from the process' clocks, or where those cannot be read,
    /// from the number of samples.
    pub cpu_us_per_op: f64,
}

/// Samples in which a function was the one that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionSamples {
    /// Whose function.
    pub role: Role,
    /// Its name; that of its file in brackets where it has none.
    pub function: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// Samples.
    pub samples: u64,
}

/// Samples of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StackSamples {
    /// The role, then the functions from the outermost to the innermost, with `;` between them; the kernel's end in
    /// `_[k]`.
    pub stack: String,
    /// Samples.
    pub samples: u64,
}

/// Where the CPU time of an arm went, sampled in trials of its own that enter no other figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Profile {
    /// Id of the arm.
    pub arm: String,
    /// What perf counted: `cycles`, or `cpu-clock` where there are no hardware counters.
    pub event: String,
    /// Samples per second of CPU time that were asked for.
    pub frequency_hz: u32,
    /// How perf found callers: `fp` (frame pointers) or `dwarf`.
    pub call_graph: String,
    /// Whether the names of the kernel's functions could be read.
    pub kernel_symbols: bool,
    /// Time of the profiled trials, in seconds.
    pub seconds: f64,
    /// Operations of the profiled trials.
    pub operations: u64,
    /// Samples.
    pub samples: u64,
    /// By role.
    pub roles: Vec<RoleShare>,
    /// Functions by their own samples, most first; the rest of a role as `[other]`.
    pub functions: Vec<FunctionSamples>,
    /// Stacks, most samples first; those of few samples are one `[other]` for each role.
    pub stacks: Vec<StackSamples>,
}

/// A function's own time per operation in two arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProfileDifference {
    /// The point that both arms belong to.
    pub point: Point,
    /// Id of the baseline.
    pub baseline: String,
    /// Id of the candidate.
    pub candidate: String,
    /// Whose function.
    pub role: Role,
    /// Its name.
    pub function: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// Own time per operation in the baseline, in microseconds.
    pub baseline_us_per_op: f64,
    /// The same in the candidate.
    pub candidate_us_per_op: f64,
    /// Candidate − baseline.
    pub difference_us_per_op: f64,
    /// Standard error of the difference that comes of sampling alone (Poisson).
    pub error_us_per_op: f64,
}
