//! The record of a case: the results, the hardware and software that produced them, and the evidence for them.
//!
//! Writes files. Starts no process and prints nothing.

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
#[cfg(test)]
mod schema_tests;
mod scripts;
#[cfg(test)]
pub(crate) mod testing;
mod write;

pub use accuracy::{Accuracy, Verdict};
pub use agreement::AgreementCheck;
pub use chain::{ChainError, EventChain, verify_chain};
pub use collect::{PhaseCollector, ReceivedEvent};
pub use finish::FinishInfo;
pub use flops::{FlopCount, PeakRecord};
pub use machine::Machine;
pub use output_copy::OutputTimeVerdict;
pub use provenance::Provenance;
pub use record::{
    ClockCheck, DeviceRecord, FailureRecord, FileRecord, HostRecord, PhaseRecord, Record, SampleFailure, Setting,
    Status, StepRecord,
};
pub use scripts::{ScriptHashes, hash_scripts};
pub use write::{WriteError, write_record};
