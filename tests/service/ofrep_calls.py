"""Calls of OFREP that tests share."""

HOST = {"targetingKey": "host-7", "qps": 5}


def evaluate(client, key, context=None, **more):
    body = {} if context is None else {"context": context}
    return client.post(f"/ofrep/v1/evaluate/flags/{key}", json=body, **more)


def evaluate_all(client, context, **more):
    return client.post("/ofrep/v1/evaluate/flags", json={"context": context}, **more)


def track(client, name, context=None, **details):
    event = {"trackingEventName": name, "context": context or {}, "trackingEventDetails": details}
    return client.post("/ofrep/v1/track", json=event)


def error(answer):
    body = answer.json()
    assert body["errorDetails"]
    return answer.status_code, body["errorCode"]
