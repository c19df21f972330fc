"""Layers -> groups: all layers that can share a block table do, whatever their page sizes."""

from collections.abc import Mapping

from octavo.specs import KVCacheSpec, KVCacheSpecRegistry, RequestLimits, UniformTypeKVCacheSpecs


def group_layers(layers: Mapping[str, KVCacheSpec], limits: RequestLimits) -> tuple[UniformTypeKVCacheSpecs, ...]:
    """The fewest groups in which all layers are uniform, those that hold the most tokens first.

    So full attention is group 0 where there is any, however long its blocks: a search for a resume point begins with
    the group that rules out the most.
    """
    members: list[dict[str, KVCacheSpec]] = []
    home: dict[KVCacheSpec, dict[str, KVCacheSpec]] = {}
    for name, spec in layers.items():
        group = home.get(spec)
        if group is None:
            group = next((g for g in members if UniformTypeKVCacheSpecs.are_uniform({**g, name: spec})), None)
        if group is None:
            group = {}
            members.append(group)
        group[name] = spec
        home[spec] = group
    groups = [UniformTypeKVCacheSpecs.of(group) for group in members]
    for uniform in groups:
        KVCacheSpecRegistry.get_metadata(uniform)  # one manager serves all layers of a group
    return tuple(sorted(groups, key=lambda group: -group.max_blocks_per_request(limits) * group.block_size))
