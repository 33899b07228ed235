//! Attention, rotary embeddings and windows: methods of a graph's values.

use flagperf_onnx::layers::{self, Attention, Rotary as RotaryLayer, RotaryAngles, RotaryScaling};
use flagperf_onnx::{BuildError, Var};
use rhai::plugin::*;
use rhai::{Array, Dynamic, Map};

use super::graph::{Graph, Node};
use super::operand::nodes;
use crate::names::script_type;
use crate::packages::options::{FunctionOptions, size};
use crate::sandbox::Fallible;

/// A rotary embedding of some positions.
#[derive(Clone)]
pub(crate) struct Rotary(RotaryLayer);

/// Reads two whole numbers: down and right.
fn pair(what: &str, values: &Array) -> Fallible<[usize; 2]> {
    let sizes = crate::packages::options::sizes(what, values)?;
    <[usize; 2]>::try_from(sizes).map_err(|_| format!("{what} must be two whole numbers: down and right").into())
}

/// Reads the value of an option that is a value of the graph.
fn node_option(options: &mut FunctionOptions, key: &'static str) -> Fallible<Option<Node>> {
    let Some(value) = options.value(key) else { return Ok(None) };
    let actual = script_type(&value);
    value
        .try_cast::<Node>()
        .map(Some)
        .ok_or_else(|| format!("`{key}` must be a value of the graph, not {actual}").into())
}

/// Reads the option `scaling` of a rotary embedding, whose keys are those of `rope_scaling` in a config.json of transformers.
fn rotary_scaling(scaling: Map) -> Fallible<Option<RotaryScaling>> {
    if scaling.is_empty() {
        return Ok(None);
    }
    let mut options = FunctionOptions::new("scaling", scaling);
    let kind = options.required_text("rope_type")?;
    let factor = options.required_number("factor")?;
    let scaling = match kind.as_str() {
        "linear" => RotaryScaling::Linear { factor },
        "llama3" => RotaryScaling::Llama3 {
            factor,
            low_freq_factor: options.required_number("low_freq_factor")?,
            high_freq_factor: options.required_number("high_freq_factor")?,
            original_positions: options.required_size("original_max_position_embeddings")?,
        },
        other => return Err(format!("`scaling`: `rope_type` must be `linear` or `llama3`, not `{other}`").into()),
    };
    options.finish()?;
    Ok(Some(scaling))
}

#[export_module]
pub(super) mod functions {
    /// Scaled dot-product attention of the queries `q`, keys `k` and values `v`: `softmax(q * k^T * scale + mask) * v`.
    /// Each is `..,heads,length,width` with one or more dimensions before the heads; or `N,length,heads * width` with
    /// the option `heads`. Fewer heads of keys and values are shared by consecutive heads of the queries. Options, with
    /// their defaults: `mask` (added to `N,heads,length,keys` with broadcasting; false hides a position in a mask of
    /// bools), `causal` (false), `scale` (1 / sqrt(width)), `heads` (one number, or those of the queries and of the
    /// keys), `past` (`[keys, values]` of earlier positions). With `past`, the result is `[output, keys, values]`,
    /// where the keys and values include the earlier ones.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,192,f32");
    /// let qkv = x.split(64, -1);
    /// let y = nn::attention(qkv[0], qkv[1], qkv[2], #{heads: 4});
    /// ```
    #[rhai_fn(return_raw)]
    pub fn attention(q: Node, k: Node, v: Node, options: Map) -> Fallible<Dynamic> {
        let mut options = FunctionOptions::new("attention", options);
        let mask = node_option(&mut options, "mask")?;
        let past = options.value("past").map(|past| past.try_cast::<Array>().unwrap_or_default());
        let past = past.map(|past| nodes("past", &past)).transpose()?;
        let past = match past.as_deref() {
            None => None,
            Some([keys, values]) => Some([&keys.var, &values.var]),
            Some(_) => return Err("`attention`: `past` must be an array of two values: keys and values".into()),
        };
        let heads = options.sizes("heads")?;
        let scale = options.number("scale")?.map(|scale| scale as f32);
        let causal = options.flag("causal", false)?;
        options.finish()?;
        let mask = mask.as_ref().map(|mask| &mask.var);
        let operands = Attention { q: &q.var, k: &k.var, v: &v.var, mask, past, heads, scale, causal };
        let outputs = q.graph.build(|builder| {
            let name = builder.unused_name("attention");
            layers::attention(builder, &name, operands)
        })?;
        let mut outputs = outputs.into_iter().map(|var| Dynamic::from(q.graph.node(var)));
        match past {
            Some(_) => Ok(outputs.collect::<Array>().into()),
            None => Ok(outputs.next().unwrap_or_default()),
        }
    }

    /// Self-attention of `N,length,width` with the weights of PyTorch's `MultiheadAttention`: `<name>.in_proj_weight`,
    /// `.in_proj_bias`, `.out_proj.weight`, `.out_proj.bias`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").multi_head_attention("self_attention", 4);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn multi_head_attention(x: Node, name: &str, heads: i64) -> Fallible<Node> {
        let heads = size("the number of heads", heads)?;
        x.add_layer(|builder, x| layers::multi_head_attention(builder, name, x, heads))
    }

    /// Prepares the rotary embedding of `positions` (`N,length,i64`). Options: `width` (of a head), `count` (of
    /// positions in its tables), `theta` (10000), `interleaved` (false: elements `i` and `i + width / 2` form a pair),
    /// `scaling` (none; or the `rope_scaling` of transformers: a map with the `rope_type` `linear` and a `factor`, or with the
    /// `rope_type` `llama3`, a `factor`, `low_freq_factor`, `high_freq_factor` and `original_max_position_embeddings`).
    ///
    /// ```rhai
    /// let positions = nn::graph("small").input("positions", "N,16,i64");
    /// let rotary = nn::rotary(positions, #{width: 64, count: 4096, scaling: #{rope_type: "linear", factor: 2.0}});
    /// ```
    #[rhai_fn(return_raw)]
    pub fn rotary(positions: Node, options: Map) -> Fallible<Rotary> {
        let mut options = FunctionOptions::new("rotary", options);
        let angles = RotaryAngles {
            width: options.required_size("width")?,
            positions: options.required_size("count")?,
            theta: options.number("theta")?.unwrap_or(10_000.0) as f32,
            interleaved: options.flag("interleaved", false)?,
            scaling: rotary_scaling(options.map("scaling")?)?,
        };
        options.finish()?;
        positions.graph.build(|builder| {
            let name = builder.unused_name("rotary");
            layers::rotary(builder, &name, &positions.var, angles).map(Rotary)
        })
    }

    /// Rotates queries or keys, `N,heads,length,width`, by the angles of their positions.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let rotary = nn::rotary(graph.input("positions", "N,16,i64"), #{width: 64, count: 2048});
    /// let q = graph.input("q", "N,4,16,64,f32").rotate(rotary);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn rotate(x: Node, rotary: Rotary) -> Fallible<Node> {
        x.numbered_layer("rotate", |builder, name, x| layers::rotate(builder, name, x, &rotary.0))
    }

    /// Writes keys or values, `N,heads,S,width`, into a cache of `length` positions, from the position `first` (`N,i64`)
    /// of each row on, and returns the cache, `N,heads,length,width`. If `past`, the cache before, has fewer positions,
    /// zeros follow: before the first run it is empty. `length` holds the prompt and all new tokens: a position outside ends the
    /// run. `session::states` carries the cache from run to run; the script counts `first`, and the mask of the attention hides
    /// the positions that have no token yet. `lib/decoder` and `lib/generation` use it so.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let first = graph.input("first", "N,i64");
    /// let mask = graph.input("mask", "N,1,1,128,bool");
    /// let q = graph.input("q", "N,4,S,64,f32");
    /// let caches = ["key", "value"].map(|kind| {
    ///     let past = graph.input(`past.0.${kind}`, "N,4,P,64,f32");
    ///     let cache = nn::update_cache(past, graph.input(kind, "N,4,S,64,f32"), first, 128);
    ///     graph.output(`present.0.${kind}`, cache);
    ///     cache
    /// });
    /// graph.output("y", nn::attention(q, caches[0], caches[1], #{mask: mask}));
    /// ```
    #[rhai_fn(return_raw)]
    pub fn update_cache(past: Node, new: Node, first: Node, length: i64) -> Fallible<Node> {
        let length = size("the length", length)?;
        let cache = past.graph.build(|builder| {
            let name = builder.unused_name("cache");
            layers::update_cache(builder, &name, [&past.var, &new.var, &first.var], length)
        })?;
        Ok(past.graph.node(cache))
    }

    /// Converts an image `N,H,W,C` to windows of `window` pixels (down and right): `N,count,pixels,C`. Height and width
    /// must be multiples of those of the window: `pad` the image first.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,56,56,96,f32").window_partition([7, 7]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn window_partition(x: Node, window: Array) -> Fallible<Node> {
        let window = pair("the window", &window)?;
        x.numbered_layer("windows", |builder, name, x| layers::window_partition(builder, name, x, window))
    }

    /// Converts windows `N,count,pixels,C` back to an image of `size` pixels (down and right): `N,H,W,C`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,64,49,96,f32").window_reverse([7, 7], [56, 56]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn window_reverse(x: Node, window: Array, size: Array) -> Fallible<Node> {
        let sizes = (pair("the window", &window)?, pair("the size", &size)?);
        x.numbered_layer("image", |builder, name, x| layers::window_reverse(builder, name, x, sizes))
    }

    /// Adds the bias of every pair of positions in a window for each head, `1,heads,pixels,pixels`, from the weight
    /// `<name>.relative_position_bias_table`, as Swin Transformer has it. `mask` is a mask of shifted windows, or `()`.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let bias = graph.relative_position_bias("attn", [7, 7], 4, ());
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn relative_position_bias(
        graph: Graph,
        name: &str,
        window: Array,
        heads: i64,
        mask: Dynamic,
    ) -> Fallible<Node> {
        let sizes = (pair("the window", &window)?, size("the number of heads", heads)?);
        let mask = mask.read_lock::<Node>().map(|mask| mask.var.clone());
        let var = graph.build(|builder| layers::relative_position_bias(builder, name, sizes, mask.as_ref()))?;
        Ok(graph.node(var))
    }

    /// Adds the mask of the windows of an image of `size` pixels that was rolled by `-shift`: -100 between pixels that
    /// were not neighbours before, `count,1,pixels,pixels`.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let mask = graph.shifted_window_mask([56, 56], [7, 7], [3, 3]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn shifted_window_mask(graph: Graph, size: Array, window: Array, shift: Array) -> Fallible<Node> {
        let image = pair("the size", &size)?;
        let sizes = (pair("the window", &window)?, pair("the shift", &shift)?);
        let var = graph.build(|builder| -> Result<Var, BuildError> {
            let name = builder.unused_name("window_mask");
            layers::shifted_window_mask(builder, &name, image, sizes)
        })?;
        Ok(graph.node(var))
    }
}
