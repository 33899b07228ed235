//! A new case of somebody else's model: an ONNX file on drawn inputs.

use std::ops::Range;
use std::path::Path;

use flagperf_onnx::{Attribute, DType, Dim, Graph, TensorSpec, check_limits, count, infer_shapes, read_onnx};
use indexmap::IndexMap;

use super::case::{add_overlays, check_new};
use super::{Checkout, Scaffold, ScaffoldError};
use flagperf_config::PARAMETERS_FILE;

/// The size of the batch, if neither the file nor the user says another.
const BATCH_SIZE: usize = 8;
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
    ("scripts", "model.rhai", include_str!("../templates/model/model.rhai")),
];

/// Returns the name that a case of a file gets: that of the file, as far as a case may have it.
pub fn case_name(file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = stem.chars().map(allowed).take(40).collect();
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) { name } else { format!("onnx_{name}") }
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
    let Ok(own) = std::fs::read_to_string(checkout.root.join(&path)) else { return Ok(false) };
    if !sizes.is_empty() {
        return Ok(model_files(name, file, sizes)?.text(&path) == Some(&*own));
    }
    let (file_name, folder) = place(file)?;
    let lines = [format!("model: {}", quoted(&file_name)), format!("default_data: {}", quoted(&folder))];
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
        _ => ("Not known: state the multiply-adds of a sample here; until then *MFU has no meaning.", 1),
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
        ("@FOLDER@", folder.clone()),
        ("@FOLDER_TEXT@", quoted(&folder)),
        ("@INPUTS@", lines(&mut graph.inputs.iter().map(|input| (&input.name, &input.spec)))),
        ("@OUTPUTS@", lines(&mut graph.outputs.iter().map(|output| (&output.name, &output.spec)))),
        ("@FIXED@\n", if inputs.is_fixed { "# The file fixes it.\n" } else { "" }.to_owned()),
        ("@BATCH@", inputs.batch.to_string()),
        ("@PRECISION@", precision(&graph).to_owned()),
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
struct Inputs<'a> {
    sizes: &'a IndexMap<String, usize>,
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

impl<'a> Inputs<'a> {
    /// Returns the inputs of a graph; the first dimension of each is that of the batch.
    fn of(graph: &Graph, sizes: &'a IndexMap<String, usize>) -> Result<Self, String> {
        let mut inputs = Inputs { sizes, batch: BATCH_SIZE, is_fixed: false, samples: IndexMap::new() };
        let (mut open, mut known): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut batch: Option<(&str, &Dim)> = None;
        for input in &graph.inputs {
            let [first, rest @ ..] = &input.spec.dims[..] else {
                return Err(format!("input `{}` has no dimension for the batch", input.name));
            };
            match batch {
                None => batch = Some((&input.name, first)),
                Some((other, dim)) if dim != first => {
                    return Err(format!(
                        "the first dimensions of the inputs `{other}` ({dim}) and `{}` ({first}) differ, so that they are not that of \
                         a batch",
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
            let rows = || table_rows(graph, &input.name).map_or(INTEGERS, |rows| 0..rows);
            let integers = (!spec.dtype.is_float()).then(rows);
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
        Ok(inputs)
    }

    /// Returns the graph with the sizes of the drawn inputs.
    fn fixed(&self, graph: &Graph) -> Graph {
        let mut graph = graph.clone();
        let names = |spec: &TensorSpec, name: &str| -> Vec<Dim> {
            let dims = spec.dims.iter().zip(0..);
            let size = |(dim, axis): (&Dim, usize)| {
                let size = open_name(name, axis, dim).and_then(|name| self.sizes.get(&name));
                size.filter(|_| axis > 0).map_or_else(|| dim.clone(), |size| Dim::Fixed(*size))
            };
            dims.map(size).collect()
        };
        for input in &mut graph.inputs {
            input.spec.dims = names(&input.spec, &input.name);
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

/// Returns the line that selects the type in which the file computes: that of its first floating-point weight or input.
fn precision(graph: &Graph) -> &'static str {
    let specs = graph.weights.values().map(|weight| &weight.spec).chain(graph.inputs.iter().map(|input| &input.spec));
    match specs.map(|spec| spec.dtype).find(|dtype| dtype.is_float()) {
        Some(DType::F16) => "fp16: true",
        Some(DType::BF16) => "precision: bf16",
        _ => "fp16: false",
    }
}

/// Returns the number of rows of the table from which an input selects; of several, the smallest.
fn table_rows(graph: &Graph, input: &str) -> Option<usize> {
    let gathers =
        graph.nodes.iter().filter(|node| node.op == "Gather" && node.inputs.get(1).is_some_and(|i| i == input));
    let rows = gathers.filter_map(|node| {
        let axis = match node.attributes.get("axis") {
            Some(Attribute::Int(axis)) => *axis,
            _ => 0,
        };
        let weight = graph.weights.get(&node.inputs[0])?;
        weight.spec.dims.get(usize::try_from(axis).ok()?)?.fixed()
    });
    rows.min()
}
