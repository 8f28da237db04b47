"""Many tuners at once: one for each tenant, endpoint, device or user, in one call."""

from rasp_tuner.fleet.batch_fleet import BatchFleet
from rasp_tuner.fleet.fleet import Fleet as Fleet
from rasp_tuner.fleet.fleet import FleetSuggestions as FleetSuggestions
from rasp_tuner.fleet.tuner_fleet import TunerFleet

Fleet.kinds = (BatchFleet, TunerFleet)
