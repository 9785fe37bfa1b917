//! Warnings: a stable code, a message for people, and the subject.

use serde::{Deserialize, Serialize};

/// What kind of warning. The code is stable; the message may be reworded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// More than one in a thousand operations failed: the headline, and no verdict.
    Errors,
    /// The client was the limit; throughput shows the client and not the transport.
    ClientBound,
    /// Client and server had to share one CPU.
    SharedCpu,
    /// The client was ready to run and waited for a CPU.
    ClientStarved,
    /// Client and server together used all CPUs.
    MachineFull,
    /// The hypervisor took CPU time away.
    Steal,
    /// The cgroup's CPU quota ran out.
    Throttled,
    /// Another process used the CPU.
    ForeignLoad,
    /// The kernel books the receive path of TCP to no process, so that its CPU time is too small.
    Softirq,
    /// Trials were measured again because other work disturbed the machine.
    Remeasured,
    /// The clock frequency changed during a trial.
    ClockChange,
    /// Throughput changed inside trials or from block to block.
    Drift,
    /// The open-loop generator was late or fell behind.
    GeneratorLate,
    /// The offered rate is more than the server could do.
    Overload,
    /// The interval is wider than asked for.
    Imprecise,
    /// Fewer blocks than the signed-rank interval needs.
    FewBlocks,
    /// An own trial had fewer connections than a verdict needs.
    FewConnections,
    /// Between two reports: what the machine does by itself is wider than the margin or the change.
    NoiseFloor,
    /// The baseline differs from itself: no difference of the report is believed.
    SelfCheck,
    /// One start of the server served all blocks.
    OneProcess,
    /// Measuring was stopped before it was done.
    Interrupted,
    /// The transport observed differs from the one asked for.
    TransportMismatch,
    /// One arm is encrypted and the other is not.
    TlsDiffers,
    /// Client and servers were in a network namespace of their own, without the host's packet filter.
    OwnNetwork,
    /// TCP ran with a congestion control that most machines do not have by default.
    Congestion,
    /// Something could not be measured here.
    NotMeasured,
    /// Samples could not be stored as they came.
    NotStored,
    /// The compared reports differ in something that matters.
    HostDiffers,
    /// Anything a workload wants said.
    Note,
}

impl Code {
    /// Whether only an analysis creates it, for a whole report. A new analysis replaces such a warning.
    #[must_use]
    pub fn is_of_analysis(self) -> bool {
        match self {
            Code::Errors
            | Code::ClientBound
            | Code::SharedCpu
            | Code::ClientStarved
            | Code::MachineFull
            | Code::Steal
            | Code::Throttled
            | Code::ForeignLoad
            | Code::Softirq
            | Code::Remeasured
            | Code::Drift
            | Code::GeneratorLate
            | Code::Overload
            | Code::Imprecise
            | Code::FewConnections
            | Code::NoiseFloor
            | Code::SelfCheck
            | Code::OneProcess => true,
            Code::ClockChange
            | Code::FewBlocks
            | Code::Interrupted
            | Code::TransportMismatch
            | Code::TlsDiffers
            | Code::OwnNetwork
            | Code::Congestion
            | Code::NotMeasured
            | Code::NotStored
            | Code::HostDiffers
            | Code::Note => false,
        }
    }
}

/// What is odd and what it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    /// What kind of warning.
    pub code: Code,
    /// One sentence for a person: what, how much, and what it means.
    pub message: String,
    /// What it is about: an arm, a metric, a trial; empty for the whole report.
    #[serde(default)]
    pub subject: String,
}

impl Warning {
    /// A warning about `subject`.
    #[must_use]
    pub fn new(code: Code, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Warning { code, message: message.into(), subject: subject.into() }
    }
}
