//! Tests of planning for other machines and for containers.

use super::tests::{catalogue, errors, planned, runnable};
use super::{Catalogue, UnavailableEngine, plan};
use flagperf_config::fixture::{Checkout, HOST, messages_of};
use flagperf_config::{ContainerOptions, Finding, Overrides};
use flagperf_core::event::Level;

#[test]
fn a_case_needs_as_many_hosts_as_its_entry_says_and_a_variable_for_several_devices() {
    let host = "VENDOR: chip\nHOSTS: [h1, h1, -oProxyCommand=x, lab@h2]\nCASES:\n    \"toy:frame:5x2\": data\n";
    let checkout = runnable().with("configs/host.yaml", host);
    assert_eq!(
        errors(&checkout, &Overrides::default()),
        [
            "configs/host.yaml:2: host `h1` is listed twice",
            "configs/host.yaml:2: `-oProxyCommand=x` is not a host name (letters, digits, `.`, `-`, `_`, and `@` after a user's \
             name)",
            "configs/host.yaml:4: case `toy:frame:5x2` needs 5 hosts, but `HOSTS` lists 4\n  hint: add hosts, or change the \
             entry of `CASES`",
            "configs/host.yaml:4: case `toy:frame:5x2` needs 2 devices of each host, but no variable selects the device of a \
             worker\n  hint: name the environment variable by which the driver selects devices, for example \
             `ACCE_VISIBLE_DEVICE_ENV_NAME: CUDA_VISIBLE_DEVICES` in host.yaml, or `visible_devices` in vendor.yaml",
        ]
    );
}

#[test]
fn a_list_of_hosts_that_is_refused_causes_no_further_error() {
    for hosts in ["h1, h2", "[h1, 2]", "[]"] {
        let host = format!("VENDOR: chip\nSSH_PORT: 7\nHOSTS: {hosts}\nCASES:\n    \"toy:frame:2x1\": data\n");
        let found = errors(&runnable().with("configs/host.yaml", &host), &Overrides::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("configs/host.yaml:3: `HOSTS` must be a non-empty list of strings"), "{found:?}");
    }
}

#[test]
fn workers_on_several_devices_that_no_monitor_identifies_are_a_warning() {
    let host = "VENDOR: chip\nACCE_VISIBLE_DEVICE_ENV_NAME: CHIPS\nCASES:\n    \"toy:frame:1x2\": data\n";
    let vendor = std::fs::read_to_string(runnable().path("vendors/chip/vendor.yaml")).unwrap();
    let warnings = |monitor: &str| {
        let checkout = runnable().with("configs/host.yaml", host);
        let checkout = checkout.with("vendors/chip/vendor.yaml", &format!("{vendor}monitor: {monitor}\n"));
        messages_of(Level::Warning, &planned(&checkout, &Overrides::default()).unwrap().findings)
    };
    assert_eq!(warnings("nvml"), [""; 0]);
    for monitor in ["null", "processor"] {
        let warned = warnings(monitor);
        let [warning] = &warned[..] else { panic!("{warned:?}") };
        assert!(
            warning.starts_with("configs/host.yaml:4: case `toy:frame:1x2` runs 2 workers on each host"),
            "{warning}"
        );
        assert!(warning.contains("`ACCE_VISIBLE_DEVICE_ENV_NAME: CUDA_VISIBLE_DEVICES`"), "{warning}");
    }
}

#[test]
fn a_missing_recipe_is_reported() {
    let host = format!("{HOST}CONTAINER: docker\n");
    let checkout = runnable().with("configs/host.yaml", &host);
    let recipe = "configs/host.yaml:3: no container recipe docker_images/chip/frame/Dockerfile (known: none)\n  hint: \
                  docker_images/README.md describes recipes; without containers, set `CONTAINER: none`";
    assert_eq!(errors(&checkout, &Overrides::default()), [recipe]);
    let checkout = checkout.with("docker_images/chip/frame/Dockerfile", "FROM scratch\n");
    assert!(planned(&checkout, &Overrides::default()).is_ok());
}

#[test]
fn a_run_in_containers_needs_an_engine_for_them_and_known_options() {
    let host = format!("{HOST}CONTAINER: docker\nACCE_CONTAINER_OPT: --gpu all\n");
    let checkout =
        runnable().with("configs/host.yaml", &host).with("docker_images/chip/frame/Dockerfile", "FROM scratch\n");
    let unavailable = || UnavailableEngine { reason: "none answers".into(), remedy: "start one".into() };
    let planned = |checkout: &Checkout| {
        let check_container_engine = Box::new(move |_: &ContainerOptions| Err(unavailable()));
        let config = checkout.load(&Overrides::default()).unwrap();
        let catalogue = Catalogue { check_container_engine, ..catalogue(checkout.root()) };
        plan(&config, &catalogue).map_err(|errors| messages_of(Level::Error, &errors.0))
    };
    let found = planned(&checkout).unwrap_err();
    let option = "configs/host.yaml:5: unknown container option `--gpu` (known: --gpus, --device, ";
    assert!(found[0].starts_with(option) && found[0].ends_with("hint: did you mean `--gpus`?"), "{found:?}");
    let engine =
        "configs/host.yaml:4: `CONTAINER: docker` cannot be used on this machine: none answers\n  hint: start one";
    assert_eq!(found[1..], [engine]);
    // What the engine says about the options has their place.
    let options = checkout.with("configs/host.yaml", &host.replace("--gpu all", "--network lab"));
    let config = options.load(&Overrides::default()).unwrap();
    let refuse = |options: &ContainerOptions| {
        Ok(vec![Finding::unplaced(format!("no network `{}`", options.network.clone().unwrap_or_default()))])
    };
    let catalogue = Catalogue { check_container_engine: Box::new(refuse), ..catalogue(options.root()) };
    let errors = plan(&config, &catalogue).map_err(|errors| messages_of(Level::Error, &errors.0)).unwrap_err();
    assert_eq!(errors, ["configs/host.yaml:5: no network `lab`"]);
    let without = options.with("configs/host.yaml", &format!("{HOST}ACCE_CONTAINER_OPT: --gpu all\n"));
    assert!(planned(&without).is_ok(), "no engine is asked, and options that are not used are not checked");
}
