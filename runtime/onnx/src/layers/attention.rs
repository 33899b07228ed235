//! Scaled dot-product attention with masks, grouped heads and caches.

use super::linear::linear_named;
use super::node::HAS_WHOLE_OPERATORS;
use super::{
    Linear, add, add_node, argument_error, arithmetic, attributes, choose, concat, fixed_size, linear, matmul, reshape,
    select, shape_of, softmax, split, swap_axes, transpose, unsqueeze,
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
    if HAS_WHOLE_OPERATORS && operands.q.spec().dims.len() <= 4 {
        return whole_attention(builder, name, operands);
    }
    let Some([q_heads, kv_heads]) = operands.heads else { return composed_attention(builder, name, operands) };
    let part = |part: &str| format!("{name}.{part}");
    let q = split_heads(builder, &part("q"), operands.q, q_heads)?;
    let k = split_heads(builder, &part("k"), operands.k, kv_heads)?;
    let v = split_heads(builder, &part("v"), operands.v, kv_heads)?;
    let separate = Attention { q: &q, k: &k, v: &v, heads: None, ..operands };
    let [y, k, v] = composed_attention(builder, &part("heads"), separate)?;
    let y = transpose(builder, &part("merged"), &y, &[0, 2, 1, 3])?;
    let width = q_heads * fixed_size(name, &v, 3, "the width of a head of the values")?;
    Ok([reshape(builder, name, &y, &[0, 0, width as i64])?, k, v])
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
    let Attention { q, k, v, mask, past, heads, scale, causal } = operands;
    let mut attributes = attributes([("is_causal", Attribute::Int(i64::from(causal)))]);
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

/// Composes an attention of other operators; the heads are a dimension of their own.
fn composed_attention(builder: &mut GraphBuilder, name: &str, operands: Attention<'_>) -> Result<[Var; 3], BuildError> {
    let Attention { q, k, v, past, causal, .. } = operands;
    let part = |part: &str| format!("{name}.{part}");
    let rank = q.spec().dims.len();
    if rank < 3 || k.spec().dims.len() != rank || v.spec().dims.len() != rank {
        let reason = format!(
            "`{}`, `{}` and `{}` are not `N,heads,length,width` (set `heads` for `N,length,width`)",
            q.spec(),
            k.spec(),
            v.spec()
        );
        return Err(argument_error(name, reason));
    }
    let [k, v] = match past {
        Some([past_k, past_v]) => [
            concat(builder, &part("present_k"), &[past_k, k], -2)?,
            concat(builder, &part("present_v"), &[past_v, v], -2)?,
        ],
        None => [k.clone(), v.clone()],
    };
    let groups = head_groups(name, q, &k)?;
    let (grouped_q, grouped_k, grouped_v) = if groups > 1 {
        (
            group_heads(builder, &part("q_groups"), q, groups)?,
            unsqueeze(builder, &part("k_groups"), &k, &[2])?,
            unsqueeze(builder, &part("v_groups"), &v, &[2])?,
        )
    } else {
        (q.clone(), k.clone(), v.clone())
    };
    let mut mask = operands.mask.map(|mask| additive_mask(builder, &part("mask"), mask, q)).transpose()?;
    if causal {
        let hidden = causal_mask(builder, &part("causal"), q, &k)?;
        mask = Some(match mask {
            Some(mask) => add(builder, &part("masks"), &mask, &hidden)?,
            None => hidden,
        });
    }
    if groups > 1 {
        mask = mask.map(|mask| group_mask(builder, &part("mask_groups"), mask)).transpose()?;
    }
    let width = fixed_size(name, q, rank - 1, "the width of a head")?;
    let scale = operands.scale.unwrap_or_else(|| (width as f32).sqrt().recip());
    let y = softmax_product(builder, name, [&grouped_q, &grouped_k, &grouped_v], (mask.as_ref(), scale, groups > 1))?;
    let y = if groups > 1 { ungroup_heads(builder, name, &y, q, &v)? } else { y };
    Ok([y, k, v])
}

/// Returns `softmax(q · kᵀ · scale + mask) · v`; the result is named `name` unless heads are `grouped`.
fn softmax_product(
    builder: &mut GraphBuilder,
    name: &str,
    [q, k, v]: [&Var; 3],
    (mask, scale, grouped): (Option<&Var>, f32, bool),
) -> Result<Var, BuildError> {
    let part = |part: &str| format!("{name}.{part}");
    let keys = swap_axes(builder, &part("keys"), k, -1, -2)?;
    let product = matmul(builder, &part("product"), q, &keys)?;
    let mut scores = arithmetic::scale(builder, &part("scores"), &product, scale)?;
    if let Some(mask) = mask {
        scores = add(builder, &part("masked"), &scores, mask)?;
    }
    let weights = softmax(builder, &part("weights"), &scores, -1)?;
    matmul(builder, &if grouped { part("y_groups") } else { name.to_owned() }, &weights, v)
}

/// Converts `N,L,heads·E` to `N,heads,L,E`.
fn split_heads(builder: &mut GraphBuilder, name: &str, x: &Var, heads: usize) -> Result<Var, BuildError> {
    if x.spec().dims.len() != 3 {
        return Err(argument_error(
            name,
            format!("`{}` is not `N,length,width`, so its heads cannot be split", x.spec()),
        ));
    }
    let width = fixed_size(name, x, 2, "the width")?;
    if width.checked_rem(heads) != Some(0) {
        return Err(argument_error(name, format!("a width of {width} cannot be split into {heads} heads")));
    }
    let split = reshape(builder, &format!("{name}.split"), x, &[0, 0, heads as i64, (width / heads) as i64])?;
    transpose(builder, &format!("{name}.heads"), &split, &[0, 2, 1, 3])
}

/// Returns how many heads of the queries each head of the keys serves.
fn head_groups(name: &str, q: &Var, k: &Var) -> Result<usize, BuildError> {
    let rank = q.spec().dims.len();
    let heads = |x: &Var| x.spec().dims[rank - 3].fixed();
    match (heads(q), heads(k)) {
        (Some(q), Some(k)) if q != k => match q.checked_rem(k) {
            Some(0) if rank == 4 => Ok(q / k),
            _ => Err(argument_error(name, format!("{q} heads of the queries cannot share {k} heads of the keys"))),
        },
        _ => Ok(1),
    }
}

/// Converts `N,heads,L,E` to `N,heads/groups,groups,L,E`.
fn group_heads(builder: &mut GraphBuilder, name: &str, q: &Var, groups: usize) -> Result<Var, BuildError> {
    let heads = fixed_size(name, q, 1, "the number of heads")?;
    let width = fixed_size(name, q, 3, "the width of a head")?;
    reshape(builder, name, q, &[0, (heads / groups) as i64, groups as i64, length(q), width as i64])
}

/// Converts the result for `N,heads/groups,groups,L,Ev` back to `N,heads,L,Ev`.
fn ungroup_heads(builder: &mut GraphBuilder, name: &str, y: &Var, q: &Var, v: &Var) -> Result<Var, BuildError> {
    let heads = fixed_size(name, q, 1, "the number of heads")?;
    let width = fixed_size(name, v, 3, "the width of a head of the values")?;
    reshape(builder, name, y, &[0, heads as i64, length(q), width as i64])
}

/// Returns the length of `N,heads,L,E`, or -1 when it is not fixed.
fn length(q: &Var) -> i64 {
    q.spec().dims[2].fixed().map_or(-1, |length| length as i64)
}

/// Adds the dimension of the groups to a mask that is the same for all heads.
fn group_mask(builder: &mut GraphBuilder, name: &str, mask: Var) -> Result<Var, BuildError> {
    match &mask.spec().dims[..] {
        [] | [_] | [_, _] => Ok(mask),
        [_, Dim::Fixed(1), _, _] | [Dim::Fixed(1), _, _] => unsqueeze(builder, name, &mask, &[-3]),
        _ => Err(argument_error(name, format!("the mask `{}` must be the same for all heads", mask.spec()))),
    }
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
