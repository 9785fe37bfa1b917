//! Plain data that the parts of samehost exchange: endpoints, arms, trials, comparisons, reports.
//!
//! Opens no socket, reads no clock and prints nothing, so that a stored report can be read, judged and
//! rendered without a server. The serde names *are* the JSON report `samehost.report/1`. A test checks that
//! the checked-in schema matches these types.

#![warn(missing_docs)]

mod arm;
mod codes;
mod comparison;
mod connection;
mod effect;
mod endpoint;
pub mod human;
pub mod metric;
pub mod printable;
mod quantity;
mod reason;
pub mod redact;
mod report;
mod reproduction;
pub mod scan;
#[cfg(feature = "schema")]
pub mod schema;
pub mod switch;
mod transport;
mod trial;
mod warning;

pub use arm::{Arm, Placement, Point};
pub use codes::{FindingCode, ObstacleCode};
pub use comparison::{Comparison, Control, Grade, Verdict};
pub use connection::{ConnectionSettings, SocketEnd};
pub use effect::{Bounds, Combination, Effect, Factor, Limit, LimitedBy, Part, Prediction};
pub use endpoint::{Endpoint, EndpointError, UNIX_PATH_MAX, percent_decoded, percent_encoded};
pub use metric::{Better, Family, Metric, MetricInfo, metric_title, split_unit};
pub use quantity::{
    QuantityError, RateSpec, parse_count_list, parse_duration, parse_fraction, parse_rate_list, parse_size,
    parse_size_list,
};
pub use reason::{Needed, Reason, Why};
pub use redact::{Redactor, Secret};
pub use report::{
    Analysis, AwakeBy, Driven, Evidence, Head, Host, LogLine, OtherProgram, Outcome, Plan, Question, Report,
    SAMPLES_SCHEMA, SCHEMA, ServerInfo, Stopping, Undivided, WorkloadInfo,
};
pub use reproduction::{
    ClaimOutcome, EffectSize, Expected, Experiment, ExperimentState, Here, Judgement, Measurement, Mode,
    REPRODUCTION_SCHEMA, Reproduction,
};
pub use samehost_services::Protocol;
pub use transport::{Transport, UnknownTransport};
pub use trial::{DrawnConnections, Latency, MachineUse, Slices, Slot, Trial};
pub use warning::{Code, Warning};
