"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.hierarchical.capabilities import compare_held_out as compare_held_out
from evalstats_plugin.hierarchical.capabilities import find_capabilities as find_capabilities
from evalstats_plugin.hierarchical.capabilities import fit_capabilities as fit_capabilities
from evalstats_plugin.hierarchical.capabilities import stability as stability
from evalstats_plugin.hierarchical.engines.plates.fit import infer as infer
from evalstats_plugin.hierarchical.engines.plates.model import Latent as Latent
from evalstats_plugin.hierarchical.engines.plates.model import Model as Model
from evalstats_plugin.hierarchical.engines.plates.model import Observed as Observed
from evalstats_plugin.hierarchical.engines.plates.model import Plate as Plate
from evalstats_plugin.hierarchical.engines.plates.results import PlatedFit as PlatedFit
from evalstats_plugin.hierarchical.engines.posterior import CapabilityFit as CapabilityFit
from evalstats_plugin.hierarchical.fit import HierarchicalFit as HierarchicalFit
from evalstats_plugin.hierarchical.fitting import HierarchicalOptions as HierarchicalOptions
from evalstats_plugin.hierarchical.fitting import pool as pool
from evalstats_plugin.hierarchical.rows import Capabilities as Capabilities
