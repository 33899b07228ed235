//! A new case of somebody else's model: an ONNX file on drawn inputs.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use flagperf_onnx::{Attribute, DType, Dim, Graph, TensorSpec, check_limits, count, infer_shapes, read_onnx};
use indexmap::IndexMap;

use super::case::{add_overlays, check_new};
use super::name::check_case;
use super::{Checkout, Scaffold, ScaffoldError};
use flagperf_config::PARAMETERS_FILE;
use flagperf_core::hash::hash_file;

/// The size of the batch, if neither the file nor the user says another.
const BATCH_SIZE: usize = 8;
/// Largest batch: a dataset has at most ten million samples.
const BATCH_SIZE_MAX: usize = 1 << 20;
/// Largest number of elements of a sample of an input: of the largest type, they take the 1 GiB that a sample may have.
const SAMPLE_ELEMENTS_MAX: usize = 1 << 27;
/// Longest name of an input: it is a key of parameters.yaml.
const NAME_BYTES_MAX: usize = 200;
/// Number of nodes behind an input that are searched for a table.
const TABLE_DISTANCE_MAX: usize = 8;
/// Number of batches of a pass.
const BATCHES: usize = 4;
/// The drawn integers of an input that selects no rows of a table, such as a mask that excludes nothing.
const INTEGERS: Range<usize> = 1..2;

/// The files of a case: the folder in the checkout, the file, its text.
const FILES: [(&str, &str, &str); 5] = [
    ("configs", "configurations.yaml", include_str!("../templates/model/configurations.yaml")),
    ("configs", "parameters.yaml", include_str!("../templates/model/parameters.yaml")),
    ("scripts", "README.md", include_str!("../templates/model/README.md")),
    ("scripts", "dataloader.rhai", include_str!("../templates/model/dataloader.rhai")),
    ("scripts", "model.rhai", MODEL_SCRIPT),
];
const MODEL_SCRIPT: &str = include_str!("../templates/model/model.rhai");

/// Returns the name that a case of a file gets: that of the file, as far as a case may have it.
pub fn case_name(file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = stem.chars().map(allowed).take(40).collect();
    if check_case(&name).is_ok() { name } else { format!("onnx_{name}") }
}

/// Returns a new case that runs the model of an ONNX file on drawn inputs, with the sizes of its open dimensions by their names, or
/// as `INPUT.AXIS` for one without a name.
///
/// # Errors
/// When the name is not allowed, the case has a folder already, or the file is not a model that the host can feed.
pub fn new_model_case(
    name: &str,
    file: &Path,
    sizes: &IndexMap<String, usize>,
    checkout: &Checkout<'_>,
) -> Result<Scaffold, ScaffoldError> {
    check_new(name, checkout)?;
    let mut scaffold = model_files(name, file, sizes)?;
    scaffold.next = vec![format!("flagperf plan --case {name}")];
    add_overlays(name, &mut scaffold, checkout);
    Ok(scaffold)
}

/// Returns whether a case that exists runs the model of this file, with these sizes if there are any.
///
/// # Errors
/// As [`new_model_case`].
pub fn runs_model(
    name: &str,
    file: &Path,
    sizes: &IndexMap<String, usize>,
    checkout: &Checkout<'_>,
) -> Result<bool, ScaffoldError> {
    let path = Path::new("configs").join(name).join(PARAMETERS_FILE);
    let script = Path::new("scripts").join(name).join("model.rhai");
    let read = |path: &Path| std::fs::read_to_string(checkout.root.join(path)).unwrap_or_default();
    let own = read(&path);
    if read(&script) != MODEL_SCRIPT {
        return Ok(false);
    }
    if !sizes.is_empty() {
        return Ok(model_files(name, file, sizes)?.text(&path) == Some(&*own));
    }
    let (file_name, folder) = place(file)?;
    let lines = [
        format!("model: {} # SHA-256 {}", quoted(&file_name), hash(file)?),
        format!("default_data: {}", quoted(&folder)),
    ];
    Ok(lines.iter().all(|line| own.lines().any(|own| own == line)))
}

/// Returns the name and the folder of a file.
fn place(file: &Path) -> Result<(String, String), ScaffoldError> {
    let failed = |reason: String| ScaffoldError::Model { path: file.to_owned(), reason };
    let absolute = file.canonicalize().map_err(|error| failed(error.to_string()))?;
    let text = |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).map(str::to_owned);
    let parts = text(absolute.file_name()).zip(text(absolute.parent().map(Path::as_os_str)));
    parts.ok_or_else(|| failed("its path is not text".to_owned()))
}

fn hash(file: &Path) -> Result<String, ScaffoldError> {
    hash_file(file).map_err(|error| ScaffoldError::Model { path: file.to_owned(), reason: error.to_string() })
}

/// Returns a text as a value of YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the files of a case that runs a model.
fn model_files(name: &str, file: &Path, sizes: &IndexMap<String, usize>) -> Result<Scaffold, ScaffoldError> {
    let failed = |reason: String| ScaffoldError::Model { path: file.to_owned(), reason };
    let (file_name, folder) = place(file)?;
    let mut graph = read_onnx(&Path::new(&folder).join(&file_name))?;
    infer_shapes(&mut graph);
    check_limits(&graph).map_err(|error| failed(error.to_string()))?;
    let inputs = Inputs::of(&graph, sizes).map_err(failed)?;
    let (counted, flops) = match count(&inputs.fixed(&graph)).multiply_adds_per_sample {
        Some(operations @ 1..) => ("The multiply-adds of a sample, as flagperf counts them in the graph.", operations),
        _ => (
            "flagperf could not count the multiply-adds of a sample: state them here, until then *MFU has no meaning.",
            1,
        ),
    };
    let lines = |specs: &mut dyn Iterator<Item = (&String, &TensorSpec)>| {
        specs.map(|(name, spec)| format!("`{name}`: `{spec}`")).collect::<Vec<_>>().join(", ")
    };
    let drawn = inputs.samples.iter().map(|(name, sample)| {
        let (min, max) = match &sample.integers {
            Some(range) => (range.start.to_string(), range.end.to_string()),
            None => ("-1.0".to_owned(), "1.0".to_owned()),
        };
        format!("    {}: {{spec: {}, min: {min}, max: {max}}}\n", quoted(name), quoted(&sample.spec.to_string()))
    });
    let values = [
        ("@NAME@", name.to_owned()),
        ("@FILE@", file_name.clone()),
        ("@FILE_TEXT@", quoted(&file_name)),
        ("@SHA256@", hash(file)?),
        ("@FOLDER@", folder.clone()),
        ("@FOLDER_TEXT@", quoted(&folder)),
        ("@INPUTS@", lines(&mut graph.inputs.iter().map(|input| (&input.name, &input.spec)))),
        ("@OUTPUTS@", lines(&mut graph.outputs.iter().map(|output| (&output.name, &output.spec)))),
        ("@FIXED@\n", if inputs.is_fixed { "# The file fixes the size of the batch.\n" } else { "" }.to_owned()),
        ("@BATCH@", inputs.batch.to_string()),
        ("@PRECISION@", precision(computed_type(&graph)).to_owned()),
        ("@SAMPLES@", (inputs.batch * BATCHES).to_string()),
        ("@COUNTED@", counted.to_owned()),
        ("@FLOPS@", flops.to_string()),
        ("@DRAWN@\n", drawn.collect()),
    ];
    let mut scaffold = Scaffold::default();
    for (folder, file, text) in FILES {
        let text = values.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value));
        scaffold.add(Path::new(folder).join(name).join(file), text);
    }
    Ok(scaffold)
}

/// The inputs of a model as the loader draws them.
struct Inputs {
    batch: usize,
    /// Whether the file fixes the batch.
    is_fixed: bool,
    samples: IndexMap<String, Sample>,
}

/// A sample of an input.
struct Sample {
    /// Its shape, without that of the batch.
    spec: TensorSpec,
    /// The range of its integers.
    integers: Option<Range<usize>>,
}

impl Inputs {
    /// Returns the inputs of a graph; the first dimension of each is that of the batch.
    fn of(graph: &Graph, sizes: &IndexMap<String, usize>) -> Result<Self, String> {
        let mut inputs = Inputs { batch: BATCH_SIZE, is_fixed: false, samples: IndexMap::new() };
        let (mut open, mut known): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut batch: Option<(&str, &Dim)> = None;
        let (computed, specs) = (computed_type(graph), graph.specs());
        if ![DType::F32, DType::F16, DType::BF16].contains(&computed) {
            return Err(format!("the model computes in `{computed}`, which no case does"));
        }
        for input in &graph.inputs {
            if input.name.len() > NAME_BYTES_MAX {
                return Err(format!("an input has a name of {} bytes (at most {NAME_BYTES_MAX})", input.name.len()));
            }
            if input.spec.dims.contains(&Dim::Fixed(0)) {
                return Err(format!("input `{}` has no elements: `{}`", input.name, input.spec));
            }
            let [first, rest @ ..] = &input.spec.dims[..] else {
                return Err(format!("input `{}` has no dimension for the batch", input.name));
            };
            match batch {
                None => batch = Some((&input.name, first)),
                Some((other, dim)) if dim != first => {
                    return Err(format!(
                        "the first dimensions of the inputs `{other}` ({dim}) and `{}` ({first}) differ, but each must be \
                         that of the batch",
                        input.name
                    ));
                }
                Some(_) => {}
            }
            let mut know = |name: Option<String>| known.extend(name.filter(|name| !known.contains(name)));
            know(open_name(&input.name, 0, first));
            let mut dims = Vec::new();
            for (dim, axis) in rest.iter().zip(1..) {
                let name = open_name(&input.name, axis, dim);
                match (dim.fixed(), name.as_ref().and_then(|name| sizes.get(name))) {
                    (Some(size), _) | (None, Some(&size)) => dims.push(Dim::Fixed(size)),
                    (None, None) => open.extend(name.clone().filter(|name| !open.contains(name))),
                }
                know(name);
            }
            let spec = TensorSpec { dims, dtype: input.spec.dtype };
            let elements = spec.dims.iter().filter_map(Dim::fixed).fold(1, usize::saturating_mul);
            if elements > SAMPLE_ELEMENTS_MAX {
                return Err(format!(
                    "a sample of input `{}` has {elements} elements (at most {SAMPLE_ELEMENTS_MAX})",
                    input.name
                ));
            }
            if spec.dtype.is_float() && spec.dtype != computed {
                return Err(format!(
                    "input `{}` is `{}`, but the model computes in `{computed}`, and floating-point inputs are drawn in that type",
                    input.name, spec.dtype
                ));
            }
            let rows = table_rows(graph, &specs, &input.name, 0);
            let integers = (!spec.dtype.is_float()).then(|| rows.map_or(INTEGERS, |rows| 0..rows));
            inputs.samples.insert(input.name.clone(), Sample { spec, integers });
        }
        if let Some(unknown) = sizes.keys().find(|name| !known.contains(name)) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(format!("no dimension `{unknown}` is open (open: {known})"));
        }
        if !open.is_empty() {
            let arguments: Vec<String> = open.iter().map(|name| format!("--shape '{name}=SIZE'")).collect();
            return Err(format!("open dimensions need a size: {}", arguments.join(" ")));
        }
        let Some((name, first)) = batch else { return Err("it has no input".to_owned()) };
        let given = open_name(name, 0, first).and_then(|name| sizes.get(&name)).copied();
        inputs.is_fixed = first.fixed().is_some();
        inputs.batch = first.fixed().or(given).unwrap_or(BATCH_SIZE);
        if inputs.batch > BATCH_SIZE_MAX {
            return Err(format!("a batch of {} rows is too large (at most {BATCH_SIZE_MAX})", inputs.batch));
        }
        Ok(inputs)
    }

    /// Returns the graph with the sizes of the drawn inputs.
    fn fixed(&self, graph: &Graph) -> Graph {
        let mut graph = graph.clone();
        for input in &mut graph.inputs {
            input.spec.dims.truncate(1);
            input.spec.dims.extend(self.samples[&input.name].spec.dims.iter().cloned());
        }
        graph
    }
}

/// Returns the name by which the user gives the size of a dimension; `None` for one that is fixed.
fn open_name(input: &str, axis: usize, dim: &Dim) -> Option<String> {
    match dim {
        Dim::Fixed(_) => None,
        Dim::Named(name) => Some(name.clone()),
        Dim::Unknown => Some(format!("{input}.{axis}")),
    }
}

/// Returns the type in which the model computes: that of its first floating-point weight, or else input.
fn computed_type(graph: &Graph) -> DType {
    let specs = graph.weights.values().map(|weight| &weight.spec).chain(graph.inputs.iter().map(|input| &input.spec));
    specs.map(|spec| spec.dtype).find(|dtype| dtype.is_float()).unwrap_or(DType::F32)
}

/// Returns the line of configurations.yaml that selects this type.
fn precision(computed: DType) -> &'static str {
    match computed {
        DType::F16 => "fp16: true",
        DType::BF16 => "precision: bf16",
        _ => "fp16: false",
    }
}

/// Returns the number of rows of the table from which a value selects, also behind nodes that keep its elements; of several, the
/// smallest.
fn table_rows(graph: &Graph, specs: &HashMap<String, TensorSpec>, value: &str, distance: usize) -> Option<usize> {
    const KEEPS_ELEMENTS: [&str; 7] = ["Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];
    let readers = graph.nodes.iter().filter(|node| distance < TABLE_DISTANCE_MAX && node.domain.is_empty());
    let rows = readers.filter_map(|node| {
        let reads = |place: usize| node.inputs.get(place).is_some_and(|input| input == value);
        if KEEPS_ELEMENTS.contains(&node.op.as_str()) && reads(0) {
            return table_rows(graph, specs, node.outputs.first()?, distance + 1);
        }
        let is_selection = ["Gather", "GatherElements"].contains(&node.op.as_str()) && reads(1);
        let table = specs.get(node.inputs.first().filter(|_| is_selection)?)?;
        let axis = match node.attributes.get("axis") {
            Some(Attribute::Int(axis)) if *axis < 0 => *axis + table.dims.len() as i64,
            Some(Attribute::Int(axis)) => *axis,
            _ => 0,
        };
        table.dims.get(usize::try_from(axis).ok()?)?.fixed().filter(|rows| *rows > 0)
    });
    rows.min()
}
