//! The record of a case: everything that was measured, what it was measured on, and the evidence for it.
//!
//! Makes values and writes files; starts no process and prints nothing.

mod accuracy;
mod agreement;
mod chain;
mod collect;
mod finish;
mod flops;
mod machine;
mod output_copy;
mod provenance;
mod record;
#[cfg(test)]
mod round_trip;
mod scripts;
#[cfg(test)]
pub(crate) mod testing;
mod write;

pub use accuracy::{Accuracy, Verdict};
pub use agreement::AgreementCheck;
pub use chain::{ChainError, EventChain, verify_chain};
pub use collect::{Arrival, PhaseCollector};
pub use finish::FinishInfo;
pub use flops::{FlopCount, Peak};
pub use machine::Machine;
pub use output_copy::OutputTime;
pub use provenance::Provenance;
pub use record::{
    ClockCheck, DeviceRecord, FailureRecord, FileRecord, HostRecord, PhaseRecord, Record, SampleFailure, Setting,
    Status, StepRecord,
};
pub use scripts::{ScriptHashes, hash_scripts};
pub use write::{WriteError, write_record};
