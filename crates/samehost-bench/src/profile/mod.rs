//! CPU profiles: separate trials under `perf record`, after everything that is measured. Whether perf is
//! installed and permitted is checked before anything is measured.

mod folding;
mod perf;

use std::str::FromStr;

pub(crate) use folding::Folding;
pub(crate) use perf::{FREQUENCY_HZ, Profiler};

/// How perf finds the call stack of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallGraph {
    /// By frame pointers: cheap; programs built without them have short stacks.
    #[default]
    FramePointers,
    /// By debug information and a copy of each stack: complete and costly.
    Dwarf,
}

impl CallGraph {
    /// Name in perf's options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CallGraph::FramePointers => "fp",
            CallGraph::Dwarf => "dwarf",
        }
    }
}

impl FromStr for CallGraph {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [CallGraph::FramePointers, CallGraph::Dwarf]
            .into_iter()
            .find(|graph| graph.name() == name)
            .ok_or_else(|| format!("callers are found by `fp` or `dwarf`, not by `{name}`"))
    }
}
