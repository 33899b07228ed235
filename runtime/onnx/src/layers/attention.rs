//! Scaled dot-product attention with masks, grouped heads and caches.

use super::linear::linear_named;
use super::{
    Linear, add, add_node, argument_error, arithmetic, attributes, choose, concat, fixed_size, linear, matmul, select,
    shape_of, softmax, split, swap_axes, unsqueeze,
};
use crate::{Attribute, BuildError, DType, Dim, GraphBuilder, Tensor, Var};

/// What is added to the scores of hidden positions. Its exponential is 0 in every type, and it is finite, so that a row
/// without visible positions has no NaN.
const HIDDEN: f32 = -1e4;

/// The most elements of a causal mask of fixed size.
const MASK_ELEMENTS_MAX: usize = 1 << 26;

/// The operands and options of an attention.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Queries: `N,heads,L,E`, or `N,L,heads·E` if `heads` is set.
    pub q: &'a Var,
    /// Keys: `N,kv_heads,S,E`, or `N,S,kv_heads·E`.
    pub k: &'a Var,
    /// Values: `N,kv_heads,S,Ev`, or `N,S,kv_heads·Ev`.
    pub v: &'a Var,
    /// Added to the scores `N,heads,L,S`, with broadcasting; if it is of type bool, false hides a position.
    pub mask: Option<&'a Var>,
    /// Keys and values of earlier positions, `N,kv_heads,P,E` each, which precede `k` and `v`.
    pub past: Option<[&'a Var; 2]>,
    /// Numbers of heads of the queries, and of the keys and values, if these lie side by side in three dimensions.
    pub heads: Option<[usize; 2]>,
    /// The factor of the scores; `1/√E` by default.
    pub scale: Option<f32>,
    /// Whether a query sees only the keys up to its own position, counted from the end.
    pub causal: bool,
}

/// Returns `softmax(q · kᵀ · scale + mask) · v` in the form of `q`: equation 1 of Vaswani et al. 2017, "Attention Is
/// All You Need". If the queries have more heads than the keys, each head of the keys serves several consecutive heads
/// of the queries (Ainslie et al. 2023, "GQA"). The keys and values that follow include those of the past:
/// `N,kv_heads,P+S,E`.
///
/// # Errors
/// When the heads, the shapes or the types do not fit each other.
pub fn attention(builder: &mut GraphBuilder, name: &str, operands: Attention<'_>) -> Result<[Var; 3], BuildError> {
    // The operator has at most one dimension for the heads and one for the batch.
    if operands.q.spec().dims.len() <= 4 {
        whole_attention(builder, name, operands)
    } else {
        composed_attention(builder, name, operands)
    }
}

/// Self-attention of `N,L,E` with the weights of `torch.nn.MultiheadAttention`: `<name>.in_proj_weight` (`3E,E`),
/// `.in_proj_bias`, `.out_proj.weight` (`E,E`) and `.out_proj.bias`.
///
/// # Errors
/// When the width is unknown or cannot be split into the heads.
pub fn multi_head_attention(builder: &mut GraphBuilder, name: &str, x: &Var, heads: usize) -> Result<Var, BuildError> {
    let width = fixed_size(name, x, 2, "the width")?;
    let names = [format!("{name}.in_proj_weight"), format!("{name}.in_proj_bias")];
    let qkv = linear_named(builder, &format!("{name}.in_proj"), x, Linear::new(width, 3 * width), &names)?;
    let parts = split(builder, &format!("{name}.qkv"), &qkv, &[width; 3], -1)?;
    let operands = Attention {
        q: &parts[0],
        k: &parts[1],
        v: &parts[2],
        mask: None,
        past: None,
        heads: Some([heads; 2]),
        scale: None,
        causal: false,
    };
    let [y, ..] = attention(builder, &format!("{name}.attention"), operands)?;
    linear(builder, &format!("{name}.out_proj"), &y, Linear::new(width, width))
}

/// Adds the operator `Attention` of operator set 23.
fn whole_attention(builder: &mut GraphBuilder, name: &str, operands: Attention<'_>) -> Result<[Var; 3], BuildError> {
    let Attention { q, k, v, past, heads, scale, causal, .. } = operands;
    let rank = q.spec().dims.len();
    if rank < 3 || k.spec().dims.len() != rank || v.spec().dims.len() != rank || (rank == 3) != heads.is_some() {
        return Err(shape_error(name, operands));
    }
    check_heads(name, operands)?;
    // Libraries disagree on the first key that the attribute `is_causal` hides if there are more keys than queries.
    let lengths = [q, k].map(|x| x.spec().dims[rank - 2].clone());
    let is_square = past.is_none() && lengths[0] == lengths[1] && lengths[0] != Dim::Unknown;
    let mask = if causal && !is_square { full_mask(builder, name, operands)? } else { operands.mask.cloned() };
    let mask = mask.as_ref();
    let mut attributes = attributes([("is_causal", Attribute::Int(i64::from(causal && is_square)))]);
    if let Some(scale) = scale {
        attributes.insert("scale".to_owned(), Attribute::Float(scale));
    }
    if let Some([q_heads, kv_heads]) = heads {
        attributes.insert("q_num_heads".to_owned(), Attribute::Int(q_heads as i64));
        attributes.insert("kv_num_heads".to_owned(), Attribute::Int(kv_heads as i64));
    }
    let Some([past_k, past_v]) = past else {
        let inputs = [Some(q), Some(k), Some(v), mask];
        let y = add_node(builder, name, "Attention", &inputs[..if mask.is_some() { 4 } else { 3 }], attributes)?;
        return Ok([y, k.clone(), v.clone()]);
    };
    let inputs = [Some(q), Some(k), Some(v), mask, Some(past_k), Some(past_v)];
    let outputs = builder.node(name, "Attention", &inputs, attributes, 3)?;
    Ok(<[Var; 3]>::try_from(outputs).expect("three outputs were requested"))
}

/// Checks that the widths can be split into the heads, and that the heads of the keys can be shared by the queries.
fn check_heads(name: &str, Attention { q, k, v, heads, .. }: Attention<'_>) -> Result<(), BuildError> {
    if let Some([q_heads, kv_heads]) = heads {
        for (x, heads) in [(q, q_heads), (k, kv_heads), (v, kv_heads)] {
            let width = fixed_size(name, x, 2, "the width")?;
            if width.checked_rem(heads) != Some(0) {
                return Err(argument_error(name, format!("a width of {width} cannot be split into {heads} heads")));
            }
        }
    }
    let counts = heads.map_or([q, k].map(|x| x.spec().dims[1].fixed()), |heads| heads.map(Some));
    match counts {
        [Some(q), Some(k)] if q.checked_rem(k) != Some(0) => {
            Err(argument_error(name, format!("{q} heads of the queries cannot share {k} heads of the keys")))
        }
        _ => Ok(()),
    }
}

fn shape_error(name: &str, Attention { q, k, v, .. }: Attention<'_>) -> BuildError {
    let specs = format!("`{}`, `{}` and `{}`", q.spec(), k.spec(), v.spec());
    argument_error(name, format!("{specs} are not `N,heads,length,width` (set `heads` for `N,length,width`)"))
}

/// Composes an attention of other operators; the heads are a dimension of their own.
fn composed_attention(builder: &mut GraphBuilder, name: &str, operands: Attention<'_>) -> Result<[Var; 3], BuildError> {
    let Attention { q, k, v, past, .. } = operands;
    let part = |part: &str| format!("{name}.{part}");
    let rank = q.spec().dims.len();
    if k.spec().dims.len() != rank || v.spec().dims.len() != rank || operands.heads.is_some() {
        return Err(shape_error(name, operands));
    }
    let [k, v] = match past {
        Some([past_k, past_v]) => [
            concat(builder, &part("present_k"), &[past_k, k], -2)?,
            concat(builder, &part("present_v"), &[past_v, v], -2)?,
        ],
        None => [k.clone(), v.clone()],
    };
    let heads = |x: &Var| x.spec().dims[rank - 3].fixed();
    if let (Some(q_heads), Some(k_heads)) = (heads(q), heads(&k))
        && q_heads != k_heads
    {
        return Err(argument_error(
            name,
            format!("{q_heads} heads of the queries cannot share {k_heads} heads of the keys"),
        ));
    }
    let mask = full_mask(builder, name, Attention { k: &k, v: &v, past: None, ..operands })?;
    let width = fixed_size(name, q, rank - 1, "the width of a head")?;
    let scale = operands.scale.unwrap_or_else(|| (width as f32).sqrt().recip());
    let y = softmax_product(builder, name, [q, &k, &v], (mask.as_ref(), scale))?;
    Ok([y, k, v])
}

/// Returns the numbers that are added to the scores: the mask, and that of causality.
fn full_mask(builder: &mut GraphBuilder, name: &str, operands: Attention<'_>) -> Result<Option<Var>, BuildError> {
    let Attention { q, k, mask, past, causal, .. } = operands;
    let part = |part: &str| format!("{name}.{part}");
    let mask = mask.map(|mask| additive_mask(builder, &part("mask"), mask, q)).transpose()?;
    if !causal {
        return Ok(mask);
    }
    let keys = past.map(|[past, _]| concat(builder, &part("all_keys"), &[past, k], -2)).transpose()?;
    let hidden = causal_mask(builder, &part("causal"), q, keys.as_ref().unwrap_or(k))?;
    match mask {
        Some(mask) => add(builder, &part("masks"), &mask, &hidden).map(Some),
        None => Ok(Some(hidden)),
    }
}

/// Returns `softmax(q · kᵀ · scale + mask) · v`.
fn softmax_product(
    builder: &mut GraphBuilder,
    name: &str,
    [q, k, v]: [&Var; 3],
    (mask, scale): (Option<&Var>, f32),
) -> Result<Var, BuildError> {
    let part = |part: &str| format!("{name}.{part}");
    let keys = swap_axes(builder, &part("keys"), k, -1, -2)?;
    let product = matmul(builder, &part("product"), q, &keys)?;
    let mut scores = arithmetic::scale(builder, &part("scores"), &product, scale)?;
    if let Some(mask) = mask {
        scores = add(builder, &part("masked"), &scores, mask)?;
    }
    let weights = softmax(builder, &part("weights"), &scores, -1)?;
    matmul(builder, name, &weights, v)
}

/// Converts a mask of bools to numbers of the type of `like`.
fn additive_mask(builder: &mut GraphBuilder, name: &str, mask: &Var, like: &Var) -> Result<Var, BuildError> {
    if mask.spec().dtype != DType::Bool {
        return Ok(mask.clone());
    }
    hide(builder, name, mask, like, false)
}

/// Returns [`HIDDEN`] where `condition` has the value `hidden`, else 0.
fn hide(builder: &mut GraphBuilder, name: &str, condition: &Var, like: &Var, hidden: bool) -> Result<Var, BuildError> {
    let zero = super::activation::scalar_like(builder, &format!("{name}.visible"), 0.0, like)?;
    let low = super::activation::scalar_like(builder, &format!("{name}.hidden"), HIDDEN, like)?;
    let (a, b) = if hidden { (&low, &zero) } else { (&zero, &low) };
    choose(builder, &format!("{name}.added"), condition, a, b)
}

/// Returns the mask `L,S` that hides from each query the keys after its own position, counted from the end.
fn causal_mask(builder: &mut GraphBuilder, name: &str, q: &Var, k: &Var) -> Result<Var, BuildError> {
    let rank = q.spec().dims.len();
    let fixed = |x: &Var| x.spec().dims[rank - 2].fixed();
    if let (Some(rows), Some(columns)) = (fixed(q), fixed(k)) {
        let hidden = |at: usize| at % columns + rows > at / columns + columns;
        let elements = rows.checked_mul(columns).filter(|elements| *elements <= MASK_ELEMENTS_MAX);
        let elements = elements.ok_or_else(|| {
            argument_error(
                name,
                format!("a causal mask of {rows} x {columns} is too large (at most {MASK_ELEMENTS_MAX} elements)"),
            )
        })?;
        let values = (0..elements).map(|at| if hidden(at) { HIDDEN } else { 0.0 }).collect();
        let mask = Tensor::from_vec([rows, columns], values).expect("the elements are those of the shape");
        return builder.constant(name, mask.cast(q.spec().dtype));
    }
    let mut size = |part: &str, x: &Var| {
        let shape = shape_of(builder, &format!("{name}.{part}.shape"), x)?;
        select(builder, &format!("{name}.{part}"), &shape, 0, rank as i64 - 2)
    };
    let (rows, columns) = (size("rows", q)?, size("columns", k)?);
    let first = arithmetic::sub(builder, &format!("{name}.first"), &columns, &rows)?;
    let zero = builder.constant(&format!("{name}.zero"), Tensor::scalar(0i64))?;
    let one = builder.constant(&format!("{name}.one"), Tensor::scalar(1i64))?;
    let keys = arithmetic::range(builder, &format!("{name}.keys"), [&zero, &columns, &one])?;
    let queries = arithmetic::range(builder, &format!("{name}.queries"), [&first, &columns, &one])?;
    let queries = unsqueeze(builder, &format!("{name}.queries_column"), &queries, &[1])?;
    let later = arithmetic::greater(builder, &format!("{name}.later"), &keys, &queries)?;
    hide(builder, name, &later, q, true)
}
