//! Converts a training that does not exist here: a case whose `command` starts FlagPerf's program with the arguments that
//! FlagPerf's starter for the framework gives it.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::file::{FileContent, NewFile, Replacement};
use super::report::KeyChange;
use super::source::{BENCHMARKS, CONFIGS, SourceTree};
use super::training::{Benchmark, PROGRAM, SizeConfig};
use super::training_own::convert_sizes;
use super::training_values::{TARGET, node, settings};
use super::tree::{Conversion, IMPORTED, schema_line};
use flagperf_config::{Node, SettingsFile};
use flagperf_core::metric;

/// Epochs of a program that ends by itself after a number of steps or samples.
const EPOCHS_MAX: u32 = 10_000;
/// Names of FlagPerf for the number of epochs.
const EPOCHS: [&str; 5] = ["max_epoch", "max_epochs", "epochs", "num_epochs", "train_epochs"];
/// What a name contains whose target is a maximum, which `target` cannot state.
const COSTS: [&str; 3] = ["loss", "ppl", "wer"];
/// The learning rate and the batch of a program whose configuration names neither.
const NOT_USED: u32 = 1;

/// Merges the vendor's settings of DeepSpeed into those of the case, sets the variables in the first line of net.sh, and starts
/// the program, as FlagPerf does.
const DEEPSPEED: [&str; 4] = [
    "sh",
    "-c",
    "python3 -c \"$1\" \"$2/ds_config.json\" && eval \"$(head -n 1 \"$2/net.sh\")\" && shift 2 && exec \"$@\"",
    "sh",
];
const MERGE: &str = "import json, sys; both = json.load(open('ds_config.json')); both.update(json.load(open(sys.argv[1]))); \
    json.dump(both, open('ds_config_tmp.json', 'w'))";

/// How FlagPerf starts the program of a framework: the arguments, in which `CONFIGS` stands for the folder of the vendor's
/// configurations, and `CONFIG` for the name of the one of the size.
pub(super) fn starter(framework: &str) -> Option<Vec<&'static str>> {
    let external = || {
        vec![
            "--extern_config_dir",
            "CONFIGS",
            "--extern_config_file",
            "CONFIG",
            "--vendor",
            "{vendor}",
            "--data_dir",
            "{data_dir}",
            "--enable_extern_config",
            "--extern_module_dir",
            "CONFIGS/../extern",
        ]
    };
    let of_deepspeed = |argument: &'static str| {
        let size = ["--node_rank", "0", "--nproc_per_node", "{nproc}", "--nnodes", "{nnodes}", argument];
        let end = ["ds_config_tmp.json", "--data_dir", "{data_dir}"];
        [&[PROGRAM, "--flagperf_config", "CONFIGS/CONFIG"][..], &size[..], &end[..]].concat()
    };
    let of_megatron = || {
        vec![
            "python3",
            "-u",
            PROGRAM,
            "--nproc_per_node={nproc}",
            "--nnodes={nnodes}",
            "--node_rank=0",
            "--master_addr=127.0.0.1",
            "--master_port=29501",
            "--vendor={vendor}",
            "--data_dir={data_dir}",
            "--log_dir={log_dir}",
            "--flagperf_config_file=CONFIGS/CONFIG",
        ]
    };
    let merged = || [&DEEPSPEED[..], &[MERGE, "CONFIGS"][..]].concat();
    Some(match framework {
        "pytorch" => {
            let launch = ["python3", "-u", "-m", "torch.distributed.launch", "--use_env", "--nnodes", "{nnodes}"];
            [&launch[..], &["--nproc_per_node", "{nproc}", PROGRAM][..], &external()[..]].concat()
        }
        "paddle" => {
            let launch = ["python3", "-u", "-m", "paddle.distributed.launch", "--nproc_per_node", "{nproc}", PROGRAM];
            [&launch[..], &external()[..]].concat()
        }
        "tensorflow2" => [&["python3", "-u", PROGRAM][..], &external()[..]].concat(),
        "deepspeed" => {
            let launch = ["torchrun", "--nproc_per_node={nproc}", "--nnodes={nnodes}", "--node_rank=0"];
            let address = ["--master_addr=127.0.0.1", "--master_port=29501"];
            let mut argv = [&merged()[..], &launch[..], &address[..], &of_deepspeed("--deepspeed_config")[..]].concat();
            let at = argv.iter().position(|argument| *argument == "--deepspeed_config").unwrap_or(argv.len());
            argv.insert(at, "--deepspeed");
            argv
        }
        "deepspeed-torch" => [&merged()[..], &["python3", "-u"][..], &of_deepspeed("--deepspeed")[..]].concat(),
        "megatron" | "megatron-deepspeed" => of_megatron(),
        "flagscale" => vec![
            "python3",
            "-u",
            PROGRAM,
            "--world_size={world_size}",
            "--hosts={flagperf_hosts}",
            "--host_addr=127.0.0.1",
            "--vendor={vendor}",
            "--data_dir={data_dir}",
            "--log_dir={log_dir}",
            "--flagperf_config_file=CONFIGS/CONFIG",
        ],
        _ => return None,
    })
}

/// Writes a case with a training program: training.yaml, parameters.yaml, and the overlays of the vendors.
pub(super) fn convert_program_case(
    benchmark: &Benchmark,
    source: &SourceTree,
    site_vendor: Option<&str>,
    conversion: &mut Conversion<'_>,
) {
    let standard = standard_size(benchmark, site_vendor);
    let entries = training_entries(benchmark, standard, conversion);
    let folder = Path::new(CONFIGS).join(&benchmark.case);
    let from = source.name(&Path::new(BENCHMARKS).join(&benchmark.model).join(&benchmark.framework));
    let header = schema_line(2, "training")
        + IMPORTED
        + "# FlagPerf's program trains and reads the configuration of the vendor itself. A value that FlagPerf states nowhere is 1, or\n\
           # 10000 epochs; the program does not use it. The parameters nnodes and nproc choose the size: --set nproc=8.\n";
    let path = folder.join(SettingsFile::TRAINING.name);
    let standard_name = path.display().to_string();
    let content = FileContent::Keys { header, entries: entries.clone() };
    conversion.files.push(NewFile { path, from: from.clone(), content, replacement: Replacement::ByForce });
    let header = schema_line(2, "parameters") + IMPORTED + "# `flagperf_folder` is FlagPerf's folder `training`.\n";
    let content = FileContent::Keys { header, entries: parameters(benchmark, source, standard) };
    let path = folder.join("parameters.yaml");
    conversion.files.push(NewFile { path, from, content, replacement: Replacement::ByForce });
    for configs in &benchmark.vendors {
        convert_sizes(benchmark, configs, &entries, &standard_name, conversion);
    }
}

/// Returns the configuration from which a case has its standard values: the smallest size of the vendor in test_conf.py, or
/// else of the one with the most sizes. One device is smallest.
fn standard_size<'b>(benchmark: &'b Benchmark, site_vendor: Option<&str>) -> Option<&'b SizeConfig> {
    let of_site = benchmark.vendors.iter().find(|configs| Some(configs.vendor.as_str()) == site_vendor);
    let most = || benchmark.vendors.iter().rev().max_by_key(|configs| configs.sizes.len());
    of_site.or_else(most)?.sizes.first()
}

/// Returns the keys of training.yaml.
fn training_entries(
    benchmark: &Benchmark,
    standard: Option<&SizeConfig>,
    conversion: &mut Conversion<'_>,
) -> IndexMap<String, Node> {
    let mut values: IndexMap<String, Value> = IndexMap::new();
    for key in ["batch_size", "eval_batch_size", "learning_rate"] {
        let value = if key == "eval_batch_size" { Value::Null } else { NOT_USED.into() };
        values.insert(key.to_owned(), value);
    }
    let file = standard.map_or(&benchmark.base, |size| &size.file);
    let devices = standard.map_or(1, SizeConfig::all_devices);
    // A wrong value is reported with the overlays.

    for setting in settings(benchmark, file, devices, |_| true, &mut Vec::new()) {
        values.insert(setting.key.to_owned(), setting.value);
    }
    let value = |name: &str| file.value(name).or_else(|| benchmark.base.value(name));
    let epochs = EPOCHS.iter().find_map(|name| value(name)?.as_u64().filter(|epochs| *epochs > 0));
    values.insert("max_epochs".to_owned(), epochs.unwrap_or(EPOCHS_MAX.into()).into());
    if let Some(steps) =
        value("max_steps").and_then(Value::as_u64).filter(|steps| (1..=u32::MAX.into()).contains(steps))
    {
        values.insert("max_steps".to_owned(), steps.into());
    }
    values.insert("target".to_owned(), target(benchmark, standard, conversion));
    values.insert("command".to_owned(), command(benchmark));
    let folder = format!("{{flagperf_folder}}/{BENCHMARKS}/{}/{}", benchmark.model, benchmark.framework);
    values.insert("command_folder".to_owned(), folder.into());
    values.iter().map(|(key, value)| (key.clone(), node(value))).collect()
}

/// Returns whether the name of a metric contains that of an error, and the host takes a greater value for the better one.
fn is_unknown_cost(metric: &str) -> bool {
    let is_cost = COSTS.iter().any(|cost| metric.to_ascii_lowercase().contains(cost));
    is_cost && !metric::find(metric).is_some_and(|known| known.is_cost)
}

/// Returns the metrics that end a training.
fn target(benchmark: &Benchmark, standard: Option<&SizeConfig>, conversion: &mut Conversion<'_>) -> Value {
    let mut targets = serde_json::Map::new();
    let files = [Some(&benchmark.base), standard.map(|size| &size.file)];
    for (name, assignment) in files.into_iter().flatten().flat_map(|file| &file.names) {
        let (Some(metric), Ok(value)) = (name.strip_prefix(TARGET), &assignment.value) else { continue };
        if value.is_null() {
            continue;
        }
        let one = json!({metric: value});
        let setting = SettingsFile::TRAINING.find("target").expect("training.yaml has the key");
        let refused = match setting.read(&node(&one)) {
            _ if is_unknown_cost(metric) => Some(
                "a smaller value must be the better one, but under this name the host takes a greater one for better"
                    .to_owned(),
            ),
            Ok(_) => None,
            Err(finding) => Some(finding.message),
        };
        match refused {
            None => drop(targets.insert(metric.to_owned(), value.clone())),
            Some(reason) => conversion.add_assignment(name, assignment, KeyChange::NoEquivalent, &reason),
        }
    }
    Value::Object(targets)
}

/// Returns the command that starts the program.
fn command(benchmark: &Benchmark) -> Value {
    let configs = format!("{{flagperf_folder}}/{{vendor}}/{}-{}/config", benchmark.model, benchmark.framework);
    let config = "config_{hardware}x{nnodes}x{nproc}.py";
    let argv = starter(&benchmark.framework).unwrap_or_default();
    argv.into_iter()
        .map(|argument| match argument {
            MERGE => argument.to_owned(),
            _ => argument.replace("CONFIGS", &configs).replace("CONFIG", config),
        })
        .collect()
}

/// Returns the keys of parameters.yaml.
fn parameters(benchmark: &Benchmark, source: &SourceTree, standard: Option<&SizeConfig>) -> IndexMap<String, Node> {
    let mut values: IndexMap<&str, Value> = IndexMap::new();
    let root = source.root.canonicalize().unwrap_or_else(|_| source.root.clone());
    values.insert("flagperf_folder", root.display().to_string().into());
    let (hosts, devices) = standard.map_or((1, 1), |size| (size.hosts, size.devices));
    values.insert("nnodes", hosts.into());
    values.insert("nproc", devices.into());
    if benchmark.framework == "flagscale" {
        values.insert("world_size", standard.map_or(1, SizeConfig::all_devices).into());
        values.insert("flagperf_hosts", "127.0.0.1".into());
    }
    let seed = standard.and_then(|size| size.file.value("seed")).or_else(|| benchmark.base.value("seed"));
    values.extend(seed.filter(|seed| seed.is_u64()).map(|seed| ("seed", seed.clone())));
    values.iter().map(|(key, value)| ((*key).to_owned(), node(value))).collect()
}
