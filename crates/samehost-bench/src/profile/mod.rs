//! Where CPU time goes: trials of their own under `perf record`, after everything that is measured. It finds out whether
//! perf is here and permitted before anything is measured, and knows nothing of what is exchanged.

mod folding;
mod perf;
mod recording;

use std::str::FromStr;

pub(crate) use folding::Folding;
pub(crate) use perf::{FREQUENCY_HZ, Profiler};

/// How perf finds who called a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallGraph {
    /// By frame pointers: cheap; programs built without them show short stacks.
    #[default]
    FramePointers,
    /// By debug information and a copy of each stack: complete and costly.
    Dwarf,
}

impl CallGraph {
    /// perf's word for it.
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
