//! `flagperf peak --hosts`: processes of libtorch on the processors of hosts, which exchange tensors with Gloo.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use flagperf_core::measure::{Clock, MonotonicClock};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::site::{finish, kill, kill_process, wait_until};
use crate::support::lab::Lab;
use crate::support::{self, checkout_with_libtorch, find_libtorch, give_devices, program};

const PEAK: [&str; 6] = ["peak", "--hosts", "--compiler", "pytorch", "--set", "threads=1"];
const ALL_REDUCE: &str = "interconnect-MPI_interserver";
const BROADCAST: &str = "interconnect-P2P_interserver";
/// The address of a machine that does not exist.
const NOWHERE: &str = "nowhere.invalid";
/// Longest time from a fault on a host to the end of the program.
const END_MAX: Duration = Duration::from_secs(60);

/// A checkout whose vendor `cpu` has libtorch, and whose hosts have a cache of their own.
struct PeakSite {
    checkout: TempDir,
}

impl PeakSite {
    /// Returns the checkout with further lines of host.yaml; `None` without libtorch.
    fn new(lines: &str) -> Option<Self> {
        checkout_with_libtorch().map(|checkout| Self::of(checkout, lines))
    }

    fn of(checkout: TempDir, lines: &str) -> Self {
        // The port of other tests is another one.
        give_devices(checkout.path());
        let file = checkout.path().join("configs/host.yaml");
        let text = fs::read_to_string(&file).expect("the site");
        let keys: Vec<&str> = lines.lines().filter_map(|line| line.split(':').next()).collect();
        let kept = text.lines().filter(|line| !keys.iter().any(|key| line.starts_with(&format!("{key}:"))));
        let text = kept.collect::<Vec<_>>().join("\n");
        fs::write(file, format!("{text}\n{lines}\n")).expect("a file");
        PeakSite { checkout }
    }

    /// Returns the checkout with this machine as two hosts.
    fn on_this_machine() -> Option<Self> {
        Self::new("HOSTS: [localhost, 127.0.0.1]\nHOST_TIMEOUT: 60")
    }

    fn path(&self) -> &Path {
        self.checkout.path()
    }

    fn cache(&self) -> PathBuf {
        self.path().join("cache")
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = program::command(self.path(), &[&PEAK[..], arguments].concat());
        command.env("XDG_CACHE_HOME", self.cache()).env_remove("SLURM_JOB_NODELIST");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        finish(self.start(arguments))
    }

    /// Returns the processes on this machine that use the cache of this checkout, each with its command line.
    fn processes(&self) -> Vec<(i32, String)> {
        let variable = format!("XDG_CACHE_HOME={}", self.cache().display());
        let read = |pid: i32, name: &str| {
            String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()).into_owned()
        };
        let entries = fs::read_dir("/proc").expect("processes").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_own = |pid: &i32| read(*pid, "environ").split('\0').any(|own| own == variable);
        pids.filter(is_own).map(|pid| (pid, read(pid, "cmdline").replace('\0', " "))).collect()
    }

    /// Waits until a process of this rank measures, and returns it and the command that started it.
    fn wait_for_rank(&self, rank: u32) -> (i32, i32) {
        let mut found = None;
        wait_until(|| {
            let processes = self.processes();
            let member = processes.iter().find(|(_, words)| words.contains(&format!("\"rank\":{rank},")));
            let child = |(pid, words): &&(i32, String)| {
                let children = fs::read_to_string(format!("/proc/{}/task/{0}/children", member.map_or(0, |own| own.0)));
                words.contains(" microbenchmark ") && children.is_ok_and(|own| own.contains(&format!("{pid} ")))
            };
            found = processes.iter().find(child).zip(member).map(|(child, member)| (child.0, member.0));
            found.is_some()
        });
        found.expect("both run")
    }

    /// Waits until nothing of the checkout runs on this machine any more.
    fn wait_for_the_end(&self) {
        let mut left = Vec::new();
        for _ in 0..600 {
            left = self.processes();
            if left.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("processes are left: {left:?}");
    }

    /// Starts a measurement, lets `fault` act on it once both processes run, and returns its exit code and its output. It must end soon,
    /// and no process may be left.
    fn output_after(&self, fault: impl FnOnce(&Self, &Child)) -> (Option<i32>, String) {
        let running = self.start(&["--only", ALL_REDUCE]);
        for rank in [0, 1] {
            self.wait_for_rank(rank);
        }
        fault(self, &running);
        let clock = MonotonicClock::start();
        let output = finish(running);
        let time = Duration::from_nanos(clock.now().0);
        assert!(time < END_MAX, "{time:?}: {}", output.1);
        self.wait_for_the_end();
        output
    }
}

/// Returns the results that the program printed as JSON.
fn results(text: &str) -> Vec<Value> {
    let json = text.find("[\n").map(|begin| &text[begin..]).unwrap_or_else(|| panic!("no results: {text}"));
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Vec<Value>>();
    values.next().and_then(Result::ok).unwrap_or_else(|| panic!("no results: {text}"))
}

/// Checks the figures of two processes on two hosts.
fn check_exchange(result: &Value, name: &str, hosts: [&str; 2]) {
    assert_eq!((&result["devices"], &result["hosts"]), (&2.into(), &2.into()), "{result}");
    assert!(result["value"].as_f64() > Some(0.0), "{result}");
    let processes = result["times"][name].as_array().expect("the times of each process");
    let places: Vec<_> = processes.iter().map(|own| (own["rank"].as_u64(), own["host"].as_str())).collect();
    assert_eq!(places, [(Some(0), Some(hosts[0])), (Some(1), Some(hosts[1]))]);
    for series in processes.iter().flat_map(|process| process["series"].as_array().expect("sizes")) {
        for comparison in [&series["comparison"], &series["comparison_of_new_inputs"]] {
            assert!(comparison["error"].as_f64() <= comparison["limit"].as_f64(), "{comparison}");
            assert!(comparison["wrong"].is_null() && comparison["compared"].as_u64() > Some(0), "{comparison}");
        }
    }
}

#[test]
fn processes_of_two_hosts_exchange_tensors_and_one_machine_under_two_names_does_not_count() {
    let Some(site) = PeakSite::on_this_machine() else { return };
    let (code, text) = site.run(&["--json", "--html", "page.html"]);
    let results = results(&text);
    let limits: Vec<_> = results.iter().map(|result| result["limit"].as_str()).collect();
    assert_eq!(limits, [Some(ALL_REDUCE), Some(BROADCAST)], "{text}");
    check_exchange(&results[0], "all_reduce", ["localhost", "127.0.0.1"]);
    check_exchange(&results[1], "broadcast", ["localhost", "127.0.0.1"]);
    let same = Value::from("host `127.0.0.1` is the same machine as host `localhost`");
    assert!(results.iter().all(|result| result["reasons"].as_array().is_some_and(|own| own.contains(&same))), "{text}");
    assert_eq!(code, Some(1), "{text}");
    let page = fs::read_to_string(site.path().join("page.html")).expect("a page");
    assert!(page.contains(ALL_REDUCE) && page.contains("device  2 x ") && page.contains(", on 2 hosts"), "{page}");
    site.wait_for_the_end();
}

#[test]
fn several_processes_of_each_host_form_one_group() {
    let Some(site) = PeakSite::on_this_machine() else { return };
    let (_, text) = site.run(&["--json", "--devices", "2"]);
    let results = results(&text);
    let [only] = results.as_slice() else { panic!("the other limit is that of two processes: {text}") };
    assert_eq!((&only["limit"], &only["devices"], &only["hosts"]), (&ALL_REDUCE.into(), &4.into(), &2.into()));
    let hosts: Vec<_> = only["times"]["all_reduce"].as_array().expect("times").iter().map(|own| &own["host"]).collect();
    assert_eq!(hosts, ["localhost", "localhost", "127.0.0.1", "127.0.0.1"]);
}

#[test]
fn what_hosts_cannot_measure_is_said_before_anything_runs() {
    let site = PeakSite::of(support::checkout(), "HOSTS: [localhost, 127.0.0.1]");
    let refused = |site: &PeakSite, arguments: &[&str], expected: &str| {
        let (code, text) = finish(
            program::command(site.path(), arguments)
                .env("XDG_CACHE_HOME", site.cache())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it starts"),
        );
        assert!(code == Some(2) && text.contains(expected), "{arguments:?}: {code:?}: {text}");
    };
    let rten = ["peak", "--hosts", "--compiler", "rten"];
    refused(&site, &rten, "error: --hosts: engine `rten` cannot exchange tensors between devices");
    for (arguments, expected) in [
        (
            &["--only", "computation-FP32"][..],
            "limit `computation-FP32` is that of one device: measure it without `--hosts`",
        ),
        (
            &["--only", "interconnect-MPI_intraserver"],
            "limit `interconnect-MPI_intraserver` is that of one host: measure it without `--hosts`",
        ),
        (
            &["--devices", "2", "--only", BROADCAST],
            "limit `interconnect-P2P_interserver` is that of one device on each of two hosts",
        ),
    ] {
        refused(&site, &[&PEAK[..], arguments].concat(), expected);
    }
    refused(
        &site,
        &["peak", "--compiler", "rten", "--only", ALL_REDUCE],
        "limit `interconnect-MPI_interserver` is that of several hosts: `--hosts` measures it on those of host.yaml",
    );
    let alone = PeakSite::of(support::checkout(), "HOSTS: [localhost]");
    refused(&alone, &PEAK, "at least two hosts are needed, and `HOSTS` in host.yaml, or the Slurm job, has 1");
}

#[test]
fn a_host_that_cannot_be_reached_is_named_and_nothing_runs() {
    let Some(site) = PeakSite::new(&format!("HOSTS: [localhost, {NOWHERE}]\nHOST_TIMEOUT: 15")) else { return };
    let (code, text) = site.run(&[]);
    assert!(code == Some(2) && text.contains(&format!("error: host `{NOWHERE}` cannot be used: ")), "{text}");
    assert!(!text.contains("measuring "), "{text}");
    site.wait_for_the_end();
}

#[test]
fn a_host_without_the_engine_is_named_with_its_rank_and_what_to_do() {
    // The caches of the hosts are empty.
    let site = PeakSite::of(support::checkout(), "HOSTS: [localhost, 127.0.0.1]\nHOST_TIMEOUT: 60");
    let (code, text) = site.run(&["--only", ALL_REDUCE]);
    // Either host may be the first one that says so.
    let named = ["localhost` (rank 0)", "127.0.0.1` (rank 1)"].map(|host| {
        format!(
            "not measured: {ALL_REDUCE}: host `{host}: the library `libtorch` is not installed: `flagperf backend install \
             libtorch`"
        )
    });
    assert!(code == Some(1) && named.iter().any(|named| text.contains(named)), "{code:?}: {text}");
    site.wait_for_the_end();
}

#[test]
fn a_host_that_cannot_begin_ends_those_that_wait_for_it() {
    let Some(site) = PeakSite::on_this_machine() else { return };
    let text = fs::read_to_string(site.path().join("configs/host.yaml")).expect("the site");
    let port = text.lines().find_map(|line| line.trim().strip_prefix("MASTER_PORT: ")).expect("the port");
    let _used = TcpListener::bind(format!("127.0.0.1:{}", port.trim_matches('"'))).expect("the port is free");
    let clock = MonotonicClock::start();
    let (code, text) = site.run(&["--only", ALL_REDUCE]);
    // The other process would wait for 120 s.
    assert!(Duration::from_nanos(clock.now().0) < END_MAX, "{text}");
    let expected = format!("not measured: {ALL_REDUCE}: host `localhost`: rank 0: ");
    assert!(
        code == Some(1) && text.contains(&expected) && text.contains("rank 0 cannot wait for the others"),
        "{text}"
    );
    site.wait_for_the_end();
}

#[test]
fn a_process_that_is_killed_on_a_host_ends_all_and_is_named() {
    let Some(site) = PeakSite::on_this_machine() else { return };
    let (code, text) = site.output_after(|site, _| kill_process(site.wait_for_rank(1).0, Signal::SIGKILL));
    let expected =
        format!("not measured: {ALL_REDUCE}: host `127.0.0.1`: rank 1: its process was killed by signal 9 (SIGKILL)");
    assert!(code == Some(1) && text.contains(&expected), "{code:?}: {text}");
}

#[test]
fn the_command_of_a_host_that_is_killed_or_stopped_ends_all_and_is_named() {
    let Some(site) = PeakSite::on_this_machine() else { return };
    let (code, text) = site.output_after(|site, _| kill_process(site.wait_for_rank(1).1, Signal::SIGKILL));
    let named = format!("not measured: {ALL_REDUCE}: host `127.0.0.1` (rank 1): `flagperf peak` ");
    let expected = format!("{named}was killed by signal 9 (SIGKILL)");
    assert!(code == Some(1) && text.contains(&expected), "{code:?}: {text}");
    let (code, text) = site.output_after(|site, _| kill_process(site.wait_for_rank(0).1, Signal::SIGSTOP));
    let expected = "host `localhost` (rank 0): `flagperf peak`: a signal (SIGSTOP) stopped it for more than 5 s";
    assert!(code == Some(1) && text.contains(expected), "{code:?}: {text}");
}

#[test]
fn an_agent_that_is_killed_ends_all_and_its_host_is_named() {
    let Some(site) = PeakSite::on_this_machine() else { return };
    let (code, text) = site.output_after(|site, _| {
        let member = site.wait_for_rank(1).1;
        let stat = fs::read_to_string(format!("/proc/{member}/stat")).expect("it runs");
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).expect("a parent");
        kill_process(parent.parse().expect("a number"), Signal::SIGKILL);
    });
    let expected = format!("not measured: {ALL_REDUCE}: host `127.0.0.1` (rank 1): the connection ended");
    assert!(code == Some(1) && text.contains(&expected), "{code:?}: {text}");
}

#[test]
fn an_interruption_and_the_death_of_the_program_end_the_processes_of_all_hosts() {
    let Some(site) = PeakSite::on_this_machine() else { return };
    let (code, text) = site.output_after(|_, running| kill(running, Signal::SIGINT));
    assert!(code == Some(130) && text.contains(&format!("not measured: {ALL_REDUCE}: it was stopped")), "{text}");
    let (code, _) = site.output_after(|_, running| kill(running, Signal::SIGKILL));
    assert_eq!(code, None);
}

/// Returns hosts of the lab on which libtorch works, and a checkout that brings the plug-in to them.
fn lab() -> Option<(Lab, PeakSite)> {
    let checkout = checkout_with_libtorch()?;
    let library = find_libtorch().ok()?;
    let packages = packages_of(&library);
    let mount = format!("{0}:{0}:ro", packages.display());
    let lab = Lab::start(2, &["--volume", &mount])?;
    // Docker makes the folders above the volume for root alone.
    let folders: Vec<String> = packages.ancestors().skip(1).map(|folder| folder.display().to_string()).collect();
    for number in [1, 2] {
        lab.host(number).exec(&format!("chmod a+rx {}", folders.join(" ")));
    }
    let name = library.file_name().expect("a file");
    fs::copy(&library, checkout.path().join("vendors/cpu").join(name)).expect("a file");
    let vendor = checkout.path().join("vendors/cpu/vendor.yaml");
    let text = fs::read_to_string(&vendor).expect("the vendor");
    let text = text.replace(library.to_str().expect("text"), name.to_str().expect("text"));
    fs::write(vendor, text).expect("a file");
    let lines = format!("HOSTS: [h1, h2]\nSSH_CONFIG: {}\nHOST_TIMEOUT: 60", lab.config().display());
    Some((lab, PeakSite::of(checkout, &lines)))
}

/// Returns the folder of the libtorch that the plug-in was linked with, and of the packages that it needs.
fn packages_of(library: &Path) -> PathBuf {
    let output = assert_cmd::Command::new("ldd").arg(library).output().expect("ldd");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("libtorch_cpu.so => ")).expect("libtorch");
    let path = line.split(" => ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a path");
    Path::new(path).ancestors().nth(3).expect("a folder").to_owned()
}

#[test]
fn both_limits_are_measured_between_two_hosts_and_count() {
    let Some((lab, site)) = lab() else { return };
    let (code, text) = site.run(&["--json"]);
    let results = results(&text);
    check_exchange(&results[0], "all_reduce", ["h1", "h2"]);
    check_exchange(&results[1], "broadcast", ["h1", "h2"]);
    // Noise of a busy machine may make a figure not count.
    let counts = results.iter().all(|result| result["reasons"] == serde_json::json!([]));
    assert_eq!(code, Some(i32::from(!counts)), "{text}");
    assert!(!text.contains("is the same machine as"), "{text}");
    for number in [1, 2] {
        wait_until(|| lab.host(number).exec("pgrep -fc '[f]lagperf |[m]icrobenchmark /' || true").trim() == "0");
    }
}

#[test]
fn a_host_that_is_cut_off_ends_all_and_its_processes_end_by_themselves() {
    let Some((lab, site)) = lab() else { return };
    let running = site.start(&[]);
    for number in [1, 2] {
        wait_until(|| lab.host(number).exec("pgrep -fc '[m]icrobenchmark /' || true").trim() != "0");
    }
    lab.host(2).cut();
    let clock = MonotonicClock::start();
    let (code, text) = finish(running);
    let time = Duration::from_nanos(clock.now().0);
    // The host is not waited for again.
    let named =
        |limit| text.contains(&format!("not measured: {limit}: host `h2` (rank 1): no answer from the host for "));
    assert!(code == Some(1) && named(ALL_REDUCE) && named(BROADCAST) && time < END_MAX, "{time:?}: {text}");
    for number in [1, 2] {
        wait_until(|| lab.host(number).exec("pgrep -fc '[f]lagperf |[m]icrobenchmark /' || true").trim() == "0");
    }
    assert!(Duration::from_nanos(clock.now().0) < 2 * END_MAX, "the cut host measured on");
}
