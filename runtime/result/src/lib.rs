//! The record of a case: the results, the hardware and software that produced them, and the evidence for them.
//!
//! Writes files. Starts no process and prints nothing.

mod accuracy;
mod agreement;
mod audit;
mod chain;
mod collect;
mod communication;
mod conditions;
mod environment;
mod executed_code;
mod facts;
mod failures;
mod finish;
mod flops;
mod library;
mod loops;
mod machine;
mod manifest;
mod output_copy;
mod paired_times;
mod phase_record;
mod provenance;
mod record;
#[cfg(test)]
mod round_trip;
mod sample_energy;
mod samples;
mod scenario_verdict;
#[cfg(test)]
mod schema_tests;
mod scripts;
#[cfg(feature = "testing")]
pub mod testing;
mod settings_difference;
mod signature;
mod step_time_change;
mod summary;
mod training;
mod training_log;
mod training_verdict;
mod trials;
mod validity;
mod write;

pub use accuracy::{Accuracy, Verdict};
pub use agreement::AgreementCheck;
pub use audit::{AuditCheck, AuditVerdict};
pub use chain::{ChainError, ChainReader, ChainedEvent, EVENTS_BYTES_MAX, EventChain, read_windows, verify_chain};
pub use collect::{PhaseCollector, ReceivedEvent};
pub use communication::{Communication, GroupCommunication};
pub use conditions::DeviceConditions;
pub use environment::{ContainerRecord, ProcessorClock};
pub use facts::conductor_facts;
pub use failures::{output_time_warnings, verdict_failures};
pub use finish::{FinishInfo, TrainingFinish};
pub use flops::{FlopCount, PeakRecord};
pub use library::{LibraryHashes, LibraryRecord, UnknownCode};
pub use loops::slow_first_pass;
pub use machine::Machine;
pub use manifest::{
    DIGEST_PREFIX, FoundFile, MANIFEST_BYTES_MAX, ManifestEntry, ManifestFault, RECORD_BYTES_MAX, ResultManifest,
    digest, list_files, write_checked_manifest, write_manifest,
};
pub use output_copy::OutputTimeVerdict;
pub use phase_record::{ClockCheck, FileRecord, PhaseRecord, SampleFailure, StepRecord};
pub use provenance::{BaseImageRecord, ImageRecord, Provenance};
pub use record::{DeviceRecord, FailureRecord, HostRecord, Record, Setting, Status, departure_text};
pub use sample_energy::{SampleEnergy, sample_energy};
pub use samples::{SAMPLES_KIND, SampleFile, SampleFiles, SampleHashers};
pub use scenario_verdict::measured_scenario;
pub use scripts::{ScriptHashes, hash_scripts};
pub use settings_difference::{different_keys, different_setting};
pub use signature::{KeyFault, PrivateKey, PublicKey, ResultSignature};
pub use step_time_change::{latency_change_text, step_time_change_text, step_time_changes};
pub use summary::{ProcessorTime, ReplicaMeasurement, ReplicaSummary, StepSummary, Summary};
pub use training::{TrainingRecord, TrainingRound, hardware_warning};
pub use training_log::{LogText, TrainingLog};
pub use validity::{
    OFFICIAL_HALF_WIDTH_MAX, OFFICIAL_PADDING_MAX, OFFICIAL_TIME_MAX, OFFICIAL_TIME_MIN, ShortTime, Validity,
    ValidityCheck, other_dataset, padding_warnings,
};
pub use write::{WriteError, write_new, write_record};
