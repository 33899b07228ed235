//! The facts about the engine that was loaded, for the record.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::modules::{ModuleHashes, hash_modules};
use super::phase::failure;
use flagperf_core::event::{EngineFacts, Failure, SidecarFacts};
use flagperf_core::units::Seconds;
use flagperf_engine::{SessionFacts, loaded_version};
use flagperf_monitor::DeviceFacts;
use flagperf_plan::{EngineChoice, Job};
use flagperf_script::Sessions;

/// Returns what the vendor's monitor reports about a device.
fn monitored_device(job: &Job, device: &str) -> Option<DeviceFacts> {
    flagperf_monitor::find(job.monitor.as_deref()?)?.device(device)
}

/// Checks the number of threads that the sessions report against the requested one. Returns a warning if one computes
/// with fewer.
///
/// # Errors
/// When a session computes with more threads than requested: its figures would belong to another configuration.
pub fn check_threads(choice: &EngineChoice, sessions: &Sessions) -> Result<Option<String>, Failure> {
    let reported = sessions.values().filter_map(|session| Some(session.lock().ok()?.facts().threads));
    judge_threads(choice, &reported.collect::<Vec<_>>())
}

/// Judges the numbers of threads of the sessions; 0 is an unknown number.
fn judge_threads(choice: &EngineChoice, reported: &[usize]) -> Result<Option<String>, Failure> {
    let (name, requested) = (&choice.name, choice.threads as usize);
    let known = || reported.iter().copied().filter(|threads| *threads > 0 && requested > 0);
    if let Some(threads) = known().find(|threads| *threads > requested) {
        let reason =
            format!("engine `{name}` computes with {threads} threads, but `threads: {requested}` was requested");
        return Err(failure(&reason, "the engine must limit its threads; `threads: 0` leaves their number to it"));
    }
    let fewer = known().find(|threads| *threads < requested);
    Ok(fewer.map(|threads| {
        format!("engine `{name}` computes with {threads} of the {requested} threads that `threads` requests")
    }))
}

/// Returns what the sessions warn of: operators that an engine computes in another way than the standard.
pub fn engine_warnings(sessions: &Sessions) -> Vec<String> {
    let warnings = sessions.values().filter_map(|session| Some(session.lock().ok()?.facts().warnings));
    warnings.flatten().collect()
}

/// Returns the properties of the loaded engine.
pub fn engine_facts(job: &Job, sessions: &Sessions, load_s: Seconds) -> EngineFacts {
    let first = sessions.values().next().and_then(|session| Some(session.lock().ok()?.facts()));
    let engine = flagperf_engine::find(&job.engine.engine).ok();
    let version = engine.zip(first.as_ref()).map(|(engine, session)| loaded_version(engine, session));
    let session = first.unwrap_or_else(|| SessionFacts { device: String::new(), ..SessionFacts::default() });
    let known = monitored_device(job, &session.device);
    let operators = sessions.values().filter_map(|session| Some(session.lock().ok()?.facts().operators));
    EngineFacts {
        name: job.engine.engine.clone(),
        version: version.unwrap_or_default(),
        driver: session.driver.or_else(|| known.as_ref()?.driver.clone()),
        device_id: known.and_then(|known| known.id),
        device: session.device,
        precision: job.precision().arithmetic().to_owned(),
        threads: u32::try_from(session.threads).unwrap_or(u32::MAX),
        options: job.engine.options.clone(),
        load_s,
        nodes_by_provider: session.nodes_by_provider,
        plugin: session.plugin,
        sidecar: session.sidecar,
        server: session.server,
        operators: operators.flatten().collect(),
    }
}

/// Returns the properties of the first sidecar at its end, with the hashes of the modules that all have imported.
pub fn sidecar_facts_with_modules(all: &[&Sessions]) -> Option<SidecarFacts> {
    let sessions = all.iter().flat_map(|sessions| sessions.values());
    let files: BTreeSet<PathBuf> =
        sessions.filter_map(|session| Some(session.lock().ok()?.modules())).flatten().collect();
    let facts = all.iter().find_map(|sessions| sidecar_facts(sessions))?;
    let ModuleHashes { sha256, not_hashed } = hash_modules(files);
    Some(SidecarFacts { modules_sha256: sha256, modules_not_hashed: not_hashed, ..facts })
}

/// Returns the properties of the sidecar. When several sidecars run one graph of the model each, returns those of the
/// first with the reshaped outputs of all, under `<graph>.<output>`.
pub fn sidecar_facts(sessions: &Sessions) -> Option<SidecarFacts> {
    let several = sessions.len() > 1;
    let facts = sessions.iter().filter_map(|(graph, session)| Some((graph, session.lock().ok()?.facts().sidecar?)));
    let named = facts.map(|(graph, mut facts)| {
        if several {
            let outputs = std::mem::take(&mut facts.reshaped_outputs).into_iter();
            facts.reshaped_outputs = outputs.map(|(name, output)| (format!("{graph}.{name}"), output)).collect();
        }
        facts
    });
    named.reduce(|mut all, facts| {
        all.reshaped_outputs.extend(facts.reshaped_outputs);
        all.third_value = all.third_value.or(facts.third_value);
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_requested_are_an_error_and_fewer_a_warning() {
        let judge = |threads, reported: &[usize]| {
            judge_threads(&EngineChoice { name: "own".to_owned(), threads, ..EngineChoice::default() }, reported)
        };
        for (requested, reported) in [(0, &[64][..]), (4, &[4, 4]), (4, &[0])] {
            assert_eq!(judge(requested, reported).unwrap(), None, "{requested} {reported:?}");
        }
        let error = judge(1, &[1, 64]).unwrap_err().reason;
        assert_eq!(error, "engine `own` computes with 64 threads, but `threads: 1` was requested");
        let warning = judge(4, &[2]).unwrap();
        assert_eq!(warning.as_deref(), Some("engine `own` computes with 2 of the 4 threads that `threads` requests"));
    }
}
