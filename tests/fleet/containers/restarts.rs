//! The container engine is restarted while a case is measuring.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::second_engine::SecondEngine;
use super::sites::ContainerSite;
use crate::support::program;

/// The compiler is part of the program.
const RTEN: &str = "{engine: rten}";
/// What a run prints when it has measured the second pass of validation.
const MEASURED: &str = "validation pass 2/";
/// What a run prints when a case waits for the engine.
const WAITS: &str = "the container engine does not answer; waiting for it";

/// A checkout whose two cases run in containers of an engine that is restarted. The first case has `passes` passes.
struct RestartSite {
    site: ContainerSite,
    engine: SecondEngine,
}

impl RestartSite {
    fn new(name: &str, options: &[&'static str], passes: u32) -> Option<Self> {
        let site = ContainerSite::new(name, RTEN)?;
        let engine = SecondEngine::start(options)?;
        let host = "VENDOR: side\nCONTAINER: docker\nCASES:\n    \"tiny:interpreter\": data\n    \"tiny_again:interpreter\": data\n";
        site.write("configs/host.yaml", host);
        let path = "configs/tiny/configurations.yaml";
        let text = fs::read_to_string(site.path().join(path)).expect("the case");
        site.write(path, &text.replace("repeat: 2\n", &format!("repeat: {passes}\n")));
        Some(RestartSite { site, engine })
    }

    /// Runs the cases. `on_measured` is called when the first one has measured two passes, `on_wait` when a case waits for the
    /// engine.
    fn run(
        &mut self,
        on_measured: impl FnOnce(&mut SecondEngine),
        on_wait: impl FnOnce(&mut SecondEngine),
    ) -> [Value; 2] {
        let (mut on_measured, mut on_wait) = (Some(on_measured), Some(on_wait));
        let mut command = program::command(self.site.path(), &["run", "--plain"]);
        command.env("DOCKER_HOST", self.engine.address()).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut run = command.spawn().expect("the program starts");
        for line in BufReader::new(run.stderr.take().expect("a pipe")).lines().map_while(Result::ok) {
            if has_measured(&line)
                && let Some(act) = on_measured.take()
            {
                act(&mut self.engine);
            }
            if line.contains(WAITS)
                && let Some(act) = on_wait.take()
            {
                act(&mut self.engine);
            }
        }
        run.wait().expect("the run ended");
        ["tiny_interpreter", "tiny_again_interpreter"].map(|case| self.record(case))
    }

    fn record(&self, case: &str) -> Value {
        let run =
            fs::read_dir(self.site.path().join("result")).expect("results").next().expect("a run").expect("a run");
        let folder = run.path().join(case).join("localhost_noderank0");
        let text = fs::read_to_string(folder.join("record.json")).expect("a record");
        let verified = program::flagperf(self.site.path(), &["verify", &folder.to_string_lossy()]);
        assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stdout));
        serde_json::from_str(&text).expect("a record")
    }
}

/// Returns whether the case that is measuring has measured two passes.
fn has_measured(line: &str) -> bool {
    line.contains(MEASURED) && line.contains("batch 3/3")
}

/// Checks the record of a case whose engine was ended while it measured.
fn assert_engine_lost(record: &Value) {
    let reason = record["failures"][0]["reason"].as_str().expect("a reason");
    assert_eq!(reason, "the worker ended before it had finished: its container engine stopped or restarted");
    assert_eq!(record["failures"][0]["phase"], "validate", "{record}");
    let passes = record["phases"][0]["measured"][0]["passes"].as_array().expect("passes");
    assert!(passes.len() >= 2, "{passes:?}");
}

#[test]
fn an_engine_that_is_restarted_ends_its_case_with_that_reason_and_the_next_case_runs() {
    let Some(mut site) = RestartSite::new("restarted", &[], 1_000_000) else { return };
    let restart = |engine: &mut SecondEngine| {
        engine.end_daemon(Signal::SIGKILL);
        engine.start_daemon();
    };
    let [first, second] = site.run(restart, |_| ());
    assert_engine_lost(&first);
    assert_eq!(second["status"], "ok", "{second}");
    assert!(site.engine.containers().is_empty());
}

#[test]
fn a_case_waits_for_an_engine_that_was_stopped_and_is_started_again_later() {
    let Some(mut site) = RestartSite::new("stopped", &[], 1_000_000) else { return };
    let [first, second] = site.run(|engine| engine.end_daemon(Signal::SIGTERM), SecondEngine::start_daemon);
    assert_engine_lost(&first);
    assert_eq!(second["status"], "ok", "{second}");
    assert!(site.engine.containers().is_empty());
}

#[test]
fn a_worker_outlives_the_restart_of_an_engine_that_keeps_its_containers() {
    let Some(mut site) = RestartSite::new("live_restore", &["--live-restore"], 1_000) else { return };
    let restart = |engine: &mut SecondEngine| {
        // It waits, so that it does not finish before the engine is back.
        engine.signal_worker(Signal::SIGSTOP);
        engine.end_daemon(Signal::SIGKILL);
        engine.start_daemon();
        engine.signal_worker(Signal::SIGCONT);
    };
    let [first, second] = site.run(restart, |_| ());
    assert_eq!((&first["status"], &second["status"]), (&Value::from("ok"), &Value::from("ok")), "{first}");
    assert!(site.engine.containers().is_empty());
}
