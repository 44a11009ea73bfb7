"""The ready-made configurations, installed as the data of `astrai_data.pipelines` and read by name."""
