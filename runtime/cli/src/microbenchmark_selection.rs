//! What `flagperf run --operator` and `flagperf peak` measure: operators, formats and shapes, and the engine.

use std::path::Path;

use flagperf_config::{EngineEntry, Vendor, VisibleDevices, list_known, parse_yaml};
use flagperf_core::process_group::PROCESS_GROUP_OPTION;
use flagperf_core::tensor::DType;
use flagperf_core::text::one_line;
use flagperf_engine::{EngineSource, check_options, find};
use flagperf_microbenchmark::{FORMATS, Format, GroupSize, LIMITS, Limit, Operator, Sizes};
use flagperf_plan::DEVICE_VARIABLE_HINT;
use indexmap::IndexMap;

use super::microbenchmark::EngineArguments;

/// Finds the entry of the engine among the compilers and the frameworks of a vendor, with its name there.
pub(super) fn find_entry<'v>(
    vendor: &'v Vendor,
    arguments: &'v EngineArguments,
) -> Result<(&'v str, &'v EngineEntry), String> {
    let of_vendor = || vendor.default_framework.as_deref().filter(|name| vendor.frameworks.contains_key(*name));
    let name = arguments.compiler.as_deref().or_else(of_vendor);
    let names = || vendor.compilers.keys().chain(vendor.frameworks.keys()).map(String::as_str);
    let file = format!("vendors/{}/vendor.yaml", vendor.name);
    let name = name.ok_or_else(|| format!("{file} has no `default_framework`: name an engine with --compiler"))?;
    let compiler = vendor.compilers.get(name).filter(|_| arguments.compiler.is_some());
    let entry = compiler.or_else(|| vendor.frameworks.get(name));
    let unknown = || format!("unknown compiler or framework `{name}` (known in {file}: {})", list_known(name, names()));
    Ok((name, entry.ok_or_else(unknown)?))
}

/// Finds the engine of a vendor on this machine, and applies the options.
pub(super) fn find_engine(root: &Path, vendor: &Vendor, arguments: &EngineArguments) -> Result<EngineSource, String> {
    let (name, entry) = find_entry(vendor, arguments)?;
    let mut engine = EngineSource::of_entry(root, vendor, entry)?;
    for set in &arguments.set {
        let refused = |reason: &str| format!("--set {}: {reason}", one_line(set));
        let (option, value) =
            set.split_once('=').ok_or_else(|| refused("not an option with its value, such as `threads=1`"))?;
        let option = option.strip_prefix(&format!("{name}.")).unwrap_or(option);
        let value = parse_yaml(value).map_err(|error| refused(&error.reason))?.value();
        engine.options.insert(option.to_owned(), value);
    }
    if let Some(threads) = engine.options.shift_remove("threads").filter(|threads| !threads.is_null()) {
        let threads = threads.as_u64().and_then(|threads| u32::try_from(threads).ok());
        engine.threads = threads.ok_or("`threads` must be a number")?;
    }
    let row = engine.find_engine().map_err(|unknown| unknown.to_string())?;
    let options = engine.load_options(DType::F32, Path::new(""));
    check_options(row, &options).map_err(|error| error.to_string())?;
    Ok(engine)
}

/// Returns the limits with these names, or all: of one device, or of so many that are measured together.
pub(super) fn chosen_limits(names: &[String], size: GroupSize) -> Result<Vec<&'static Limit>, String> {
    if names.is_empty() {
        return Ok(LIMITS.iter().filter(|limit| limit.is_of(size)).collect());
    }
    let several = if size.hosts > 1 { "--hosts" } else { "--devices" };
    let chosen = |name: &String| match Limit::find(name)? {
        limit if limit.is_of(size) => Ok(limit),
        limit if !limit.is_of_several_devices() => {
            Err(format!("limit `{name}` is that of one device: measure it without `{several}`"))
        }
        limit if !limit.is_between_hosts() && size.hosts > 1 => {
            Err(format!("limit `{name}` is that of one host: measure it without `--hosts`"))
        }
        limit if limit.is_between_hosts() && size.hosts == 1 => {
            Err(format!("limit `{name}` is that of several hosts: `--hosts` measures it on those of host.yaml"))
        }
        _ if size.hosts > 1 => Err(format!("limit `{name}` is that of one device on each of two hosts")),
        _ if size.devices > 1 => Err(format!("limit `{name}` is that of two devices: `--devices 2`")),
        _ => Err(format!("limit `{name}` is that of several devices: `--devices 2` measures it on two")),
    };
    names.iter().map(chosen).collect()
}

/// Checks that an engine can measure on several devices: each of its processes must see its own, and join the others.
pub(super) fn check_devices(engine: &str, visible: Option<&VisibleDevices>, size: GroupSize) -> Result<(), String> {
    let GroupSize { hosts, devices } = size;
    if devices > 1 && visible.is_none() {
        return Err(format!("--devices: no variable selects the device of a process\n  hint: {DEVICE_VARIABLE_HINT}"));
    }
    let description = find(engine).map_err(|unknown| unknown.to_string())?.description();
    let is_group = hosts > 1 || devices > 1;
    if is_group && description.options.is_some() && description.option(PROCESS_GROUP_OPTION).is_none() {
        let argument = if hosts > 1 { "--hosts" } else { "--devices" };
        return Err(format!(
            "{argument}: engine `{}` cannot exchange tensors between devices\n  hint: engines that can have the option \
             `{PROCESS_GROUP_OPTION}`",
            description.name
        ));
    }
    Ok(())
}

/// An operator, its format, and the sizes that are not FlagPerf's.
pub(super) type Chosen = (&'static Operator, Format, IndexMap<String, usize>);

/// Returns each operator in each shape: a dimension that is given several times has several sizes, and one that an operator does not
/// have is that of another.
pub(super) fn chosen_operators(names: &[String], shapes: &[(String, usize)]) -> Result<Vec<Chosen>, String> {
    let operators = names.iter().map(|name| operator_and_format(name)).collect::<Result<Vec<_>, _>>()?;
    let mut dimensions: IndexMap<&str, Vec<usize>> = IndexMap::new();
    for (name, size) in shapes {
        dimensions.entry(name).or_default().push(*size);
    }
    let has = |operator: &Operator, name: &str| operator.sizes.iter().any(|(own, _)| *own == name);
    let unknown = dimensions.keys().find(|name| !operators.iter().any(|(operator, _)| has(operator, name)));
    if let (Some(name), Some((operator, _))) = (unknown, operators.first()) {
        let given = [((*name).to_owned(), 1)].into();
        return Sizes::of(operator, &given).map(|_| Vec::new()).map_err(|error| error.to_string());
    }
    let mut chosen = Vec::new();
    for (operator, format) in operators {
        let mut combinations = vec![IndexMap::new()];
        for (name, sizes) in dimensions.iter().filter(|(name, _)| has(operator, name)) {
            let with_sizes = combinations.iter().flat_map(|known: &IndexMap<String, usize>| {
                sizes.iter().map(|size| known.clone().into_iter().chain([((*name).to_owned(), *size)]).collect())
            });
            combinations = with_sizes.collect();
        }
        chosen.extend(combinations.into_iter().map(|sizes| (operator, format, sizes)));
    }
    let is_possible = |(operator, _, sizes): &Chosen| Sizes::of(operator, sizes).map(drop);
    chosen.iter().try_for_each(is_possible).map_err(|error| error.to_string())?;
    Ok(chosen)
}

/// Reads `mm:FP16`.
fn operator_and_format(name: &str) -> Result<(&'static Operator, Format), String> {
    let refused = |reason: String| format!("--operator {}: {reason}", one_line(name));
    let mut parts = name.split(':');
    let operator = Operator::find(parts.next().unwrap_or_default()).map_err(refused)?;
    let format = parts.next().ok_or_else(|| refused(format!("the format is missing: `{}:FP32`", operator.name)))?;
    let known = || FORMATS.iter().map(|format| format.name);
    let unknown = || refused(format!("unknown format `{format}` (known: {})", list_known(format, known())));
    let format = Format::find(format).ok_or_else(unknown)?;
    operator.check_format(format).map_err(refused)?;
    if parts.next().is_some() {
        let short = format!("{}:{}", operator.name, format.name);
        return Err(refused(format!(
            "`{short}` is enough: the peak of the device is in vendor.yaml, and --compiler names the library"
        )));
    }
    Ok((operator, format))
}

#[cfg(test)]
mod tests {
    use super::super::microbenchmark_results::sizes_text;
    use super::*;

    #[test]
    fn each_operator_is_measured_in_each_shape() {
        let shapes = [("M", 8), ("M", 16), ("N", 2)].map(|(name, size)| (name.to_owned(), size));
        let chosen = chosen_operators(&["mm:FP16", "mv:fp32", "abs:FP32"].map(str::to_owned), &shapes).unwrap();
        let shown: Vec<String> = chosen
            .iter()
            .map(|(operator, format, sizes)| format!("{} {} {}", operator.name, format.name, sizes_text(sizes)))
            .collect();
        assert_eq!(shown, ["mm FP16 M=8 N=2", "mm FP16 M=16 N=2", "mv FP32 M=8 N=2", "mv FP32 M=16 N=2", "abs FP32 "]);
    }

    #[test]
    fn a_wrong_operator_says_what_is_known() {
        let refusal = |name: &str| chosen_operators(&[name.to_owned()], &[("M".to_owned(), 8)]).unwrap_err();
        for (name, expected) in [
            ("mn:FP16", "--operator mn:FP16: unknown operator `mn` (known: abs, add, "),
            ("mm", "--operator mm: the format is missing: `mm:FP32`"),
            ("mm:FP15", "--operator mm:FP15: unknown format `FP15` (known: FP64, FP32, "),
            (
                "mm:INT8",
                "--operator mm:INT8: operator `mm` does not compute in INT8 (known: FP64, FP32, TF32, FP16, BF16)",
            ),
            (
                "mm:FP16:312:nativetorch:A100_40_SXM",
                "--operator mm:FP16:312:nativetorch:A100_40_SXM: `mm:FP16` is enough: the peak of the device is in vendor.yaml, and --compiler names the library",
            ),
            ("abs:FP32", "operator `abs` has no dimension `M` (known: Melements)"),
        ] {
            let found = refusal(name);
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
